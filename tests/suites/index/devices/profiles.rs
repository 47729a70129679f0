//! What an app says of its devices: custom attributes, topics and users.

use std::sync::Arc;

use futures::future::{join, join_all};
use push_index::{
    Absent, DICTIONARY_BYTES, Index, MAX_DISTINCT_VALUES, PatchRefused, Put, SweepStep,
};
use push_model::{
    app::App,
    attributes::Attribute,
    custom::{CustomId, ValueType},
    device::{Device, TargetFields},
    ids::{ClientId, Topic, UserId},
    profile::{
        CustomChange, DeviceWrite, MAX_TOPICS, MAX_USER_DEVICES, Profile, ProfileChange,
        TopicsChange, UserChange,
    },
    secret::Secret,
    targeting::Targeting,
};

use crate::index::support::{
    NOW, app, client, count_all, device, having, in_custom, in_topic, key, not, scan_all,
};

const PLAN: CustomId = CustomId(1);
const LEVEL: CustomId = CustomId(2);

fn values(of: &[(CustomId, &str)]) -> Vec<(CustomId, Arc<str>)> {
    of.iter().map(|(id, value)| (*id, Arc::from(*value))).collect()
}

fn topics(names: &[&str]) -> Vec<Topic> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn user(name: &str) -> UserId {
    name.parse().unwrap()
}

fn profile(custom: &[(CustomId, &str)], names: &[&str], user_id: Option<&str>) -> Profile {
    Profile { custom: values(custom), topics: topics(names), user_id: user_id.map(user) }
}

fn with(id: &str, profile: Profile) -> Device {
    Device { profile, ..device(id, &[("country", "CN")]) }
}

/// A registration that says nothing of the profile.
fn silent(device: &Device) -> DeviceWrite {
    DeviceWrite { device: device.clone(), change: ProfileChange::default() }
}

fn custom(changes: &[(CustomId, Option<&str>)]) -> ProfileChange {
    let changes = changes.iter().map(|(id, value)| (*id, value.map(Arc::from))).collect();
    ProfileChange { custom: CustomChange::Merge(changes), ..ProfileChange::default() }
}

fn edit(add: &[&str], remove: &[&str]) -> ProfileChange {
    let topics = TopicsChange::Edit { add: topics(add), remove: topics(remove) };
    ProfileChange { topics, ..ProfileChange::default() }
}

fn reassign(to: Option<&str>) -> ProfileChange {
    ProfileChange { user_id: UserChange::Set(to.map(user)), ..ProfileChange::default() }
}

async fn put(index: &dyn Index, devices: &[Device]) {
    for put in index.put_devices(&key(), devices, NOW).await.unwrap() {
        assert!(matches!(put, Ok(Put::Created | Put::Updated)), "{put:?}");
    }
}

async fn patch(index: &dyn Index, id: &str, change: ProfileChange) -> Result<Absent, PatchRefused> {
    let answers = index.patch_devices(&key(), &[(client(id), change)]).await.unwrap();
    answers.into_iter().next().unwrap()
}

async fn stored(index: &dyn Index, id: &str) -> Profile {
    index.device(&key(), &client(id)).await.unwrap().unwrap().profile
}

async fn devices_of(index: &dyn Index, name: &str) -> Vec<String> {
    let found = index.user_devices(&key(), &[user(name)]).await.unwrap();
    found.concat().iter().map(ClientId::to_string).collect()
}

pub(crate) async fn what_a_registration_does_not_name_stays(index: &dyn Index) {
    let whole = profile(&[(PLAN, "pro"), (LEVEL, "7")], &["f1", "news"], Some("anna"));
    put(index, &[with("c", whole.clone())]).await;
    // By a list, alone, and with other fields than before.
    let changed = device("c", &[("country", "SG"), ("transport", "discard"), ("token", "t")]);
    index.write_devices(&key(), &[silent(&with("c", Profile::default()))], NOW).await.unwrap();
    index.register(&key(), &silent(&changed), None, NOW).await.unwrap().unwrap();
    let found = index.device(&key(), &client("c")).await.unwrap();
    assert_eq!(found, Some(Device { profile: whole, ..changed.clone() }));

    let change = ProfileChange {
        topics: TopicsChange::Replace(topics(&["b", "a"])),
        ..custom(&[(LEVEL, None)])
    };
    let write = DeviceWrite { device: changed.clone(), change };
    assert_eq!(index.write_devices(&key(), &[write], NOW).await.unwrap(), [Ok(Put::Updated)]);
    assert_eq!(stored(index, "c").await, profile(&[(PLAN, "pro")], &["a", "b"], Some("anna")));

    // A registration that takes the place of the whole, and one after a removal.
    put(index, &[with("c", Profile::default())]).await;
    assert_eq!(stored(index, "c").await, Profile::default());
    put(index, &[with("c", profile(&[(PLAN, "pro")], &["f1"], Some("anna")))]).await;
    assert!(index.remove_device(&key(), &client("c")).await.unwrap());
    index.register(&key(), &silent(&changed), None, NOW).await.unwrap().unwrap();
    assert_eq!(stored(index, "c").await, Profile::default(), "it is another device");
    assert_eq!(devices_of(index, "anna").await, [""; 0]);
    for leaf in [in_custom(PLAN, &["pro"]), in_topic("f1")] {
        assert_eq!(count_all(index, &having(leaf.clone()), NOW).await, 0, "{leaf:?}");
        assert_eq!(count_all(index, &not(leaf.clone()), NOW).await, 1, "{leaf:?}");
    }
}

pub(crate) async fn a_patch_changes_registered_devices_only(index: &dyn Index) {
    assert_eq!(patch(index, "c", edit(&["f1"], &[])).await, Err(PatchRefused::Unknown));
    put(index, &[with("a", Profile::default())]).await;
    let changes = [
        (client("a"), custom(&[(PLAN, Some("pro"))])),
        (client("unknown"), edit(&["f1"], &[])),
        (client("a"), custom(&[(LEVEL, Some("7")), (PLAN, None)])),
        (client("a"), edit(&["f1", "f2"], &[])),
        (client("a"), edit(&["f3"], &["f2", "f9"])),
        (client("a"), reassign(Some("anna"))),
    ];
    let patched = index.patch_devices(&key(), &changes).await.unwrap();
    let (known, unknown) = (Ok(Absent::default()), Err(PatchRefused::Unknown));
    let expected = [known.clone(), unknown, known.clone(), known.clone(), known.clone(), known];
    assert_eq!(patched, expected);
    assert_eq!(stored(index, "a").await, profile(&[(LEVEL, "7")], &["f1", "f3"], Some("anna")));
    assert_eq!(index.count_devices(&key()).await.unwrap(), 1);
    assert_eq!(index.device(&key(), &client("unknown")).await.unwrap(), None);
}

pub(crate) async fn a_device_gets_no_101st_topic_and_loses_none_for_it(index: &dyn Index) {
    let names: Vec<_> = (0..=MAX_TOPICS).map(|n| format!("t{n:03}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let answers = index.put_devices(&key(), &[with("c", profile(&[], &names, None))], NOW).await;
    let absent = Absent { topics_beyond: 1, ..Absent::default() };
    assert_eq!(answers.unwrap(), [Ok(Put::Incomplete { is_new: true, absent: absent.clone() })]);
    let full = profile(&[], &names[..MAX_TOPICS], None);
    assert_eq!(stored(index, "c").await, full);
    assert_eq!(patch(index, "c", edit(&["a"], &[])).await, Ok(absent.clone()));
    assert_eq!(stored(index, "c").await, full);
    // What is taken away makes room, and a limit never keeps a topic from being taken away.
    assert_eq!(patch(index, "c", edit(&["a", "b"], &["t000"])).await, Ok(absent));
    let after = stored(index, "c").await;
    assert!(after.has_topic("a") && !after.has_topic("b") && !after.has_topic("t000"));
    assert_eq!(after.topics.len(), MAX_TOPICS);
    let everyone = scan_all(index, &key(), &having(in_topic("t099")), NOW, 10).await;
    assert_eq!(everyone, ["c"]);
    assert_eq!(patch(index, "c", edit(&[], &names)).await, Ok(Absent::default()));
    assert_eq!(stored(index, "c").await, profile(&[], &["a"], None));
}

pub(crate) async fn what_finds_no_room_is_absent_and_keeps_no_device_from_registering(
    index: &dyn Index,
) {
    index.limit_topics(5);
    put(index, &[with("old", profile(&[], &["t0", "t1", "t2", "t3"], None))]).await;
    let more = with("new", profile(&[(PLAN, "pro")], &["t0", "t4", "t5", "t6"], None));
    let answers = index.put_devices(&key(), &[more], NOW).await.unwrap();
    let absent = Absent { topics: 2, ..Absent::default() };
    assert_eq!(answers, [Ok(Put::Incomplete { is_new: true, absent: absent.clone() })]);
    assert_eq!(stored(index, "new").await, profile(&[(PLAN, "pro")], &["t0", "t4"], None));
    assert_eq!(patch(index, "new", edit(&["t8", "t9"], &["t0"])).await, Ok(absent));
    assert_eq!(stored(index, "new").await, profile(&[(PLAN, "pro")], &["t4"], None));

    // Values of 128 bytes fill the dictionaries of an app before their number does.
    let most = usize::try_from(DICTIONARY_BYTES).unwrap() / 200;
    assert!(most < MAX_DISTINCT_VALUES);
    let filling = |n: usize| custom(&[(LEVEL, Some(&*format!("{n:0>128}")))]);
    for first in (0..most).step_by(4096) {
        let changes: Vec<_> = (first..first + 4096).map(|n| (client("old"), filling(n))).collect();
        index.patch_devices(&key(), &changes).await.unwrap();
    }
    let absent = Absent { custom: vec![LEVEL], ..Absent::default() };
    assert_eq!(patch(index, "new", filling(most * 2)).await, Ok(absent));
    for short in ["a", "b", "c"] {
        patch(index, "old", custom(&[(PLAN, Some(short))])).await.unwrap();
    }
    let mut absent = Absent { custom: vec![PLAN], ..Absent::default() };
    absent.attributes.insert(Attribute::Model);
    let refused = Device {
        profile: profile(&[(PLAN, "team")], &["t4"], Some("anna")),
        ..device("refused", &[("country", "CN"), ("model", "m")])
    };
    let answers = index.put_devices(&key(), &[refused], NOW).await.unwrap();
    assert_eq!(answers, [Ok(Put::Incomplete { is_new: true, absent })]);
    assert_eq!(stored(index, "refused").await, profile(&[], &["t4"], Some("anna")));
    assert_eq!(
        patch(index, "refused", custom(&[(PLAN, Some("pro"))])).await,
        Ok(Absent::default())
    );
    // The values that no device has any more are freed.
    for _ in 0..2 {
        index.sweep(&key(), SweepStep::Now).await.unwrap();
    }
    assert_eq!(patch(index, "new", filling(most * 2)).await, Ok(Absent::default()));
    assert_eq!(count_all(index, &having(in_custom(PLAN, &["pro"])), NOW).await, 2);
}

pub(crate) async fn a_later_attribute_of_a_removed_ones_name_has_none_of_its_values(
    index: &dyn Index,
) {
    let mut record = App::new(app(), &Secret::generate(), NOW);
    let declare = |record: &mut App| {
        record.attributes.add("plan".parse().unwrap(), ValueType::String).unwrap().id
    };
    let first = declare(&mut record);
    assert!(index.create_app(&record).await.unwrap());
    let devices: Vec<_> = (0..300)
        .map(|n| {
            with(&format!("c{n}"), profile(&[(first, &*format!("p{}", n % 3))], &["f1"], None))
        })
        .collect();
    put(index, &devices).await;
    assert_eq!(count_all(index, &having(in_custom(first, &["p0"])), NOW).await, 100);

    record.attributes.remove("plan");
    let second = declare(&mut record);
    assert!(index.update_app(&record).await.unwrap());
    let p0 = having(in_custom(second, &["p0"]));
    assert_eq!(count_all(index, &p0, NOW).await, 0);
    assert_eq!(count_all(index, &not(in_custom(second, &["p0"])), NOW).await, 300);
    assert_eq!(patch(index, "c0", custom(&[(second, Some("p0"))])).await, Ok(Absent::default()));
    for _ in 0..4 {
        index.sweep(&key(), SweepStep::Now).await.unwrap();
    }
    assert_eq!(stored(index, "c0").await, profile(&[(second, "p0")], &["f1"], None));
    assert_eq!(stored(index, "c1").await, profile(&[], &["f1"], None));
    assert_eq!(scan_all(index, &key(), &p0, NOW, 10).await, ["c0"]);
    assert_eq!(count_all(index, &having(in_topic("f1")), NOW).await, 300);
}

pub(crate) async fn a_user_has_at_most_a_hundred_devices(index: &dyn Index) {
    let of = |n: usize| with(&format!("c{n:03}"), profile(&[], &[], Some("anna")));
    let devices: Vec<_> = (0..MAX_USER_DEVICES).map(of).collect();
    put(index, &devices).await;
    let absent = Absent { user_id: true, ..Absent::default() };
    let one_more = of(MAX_USER_DEVICES);
    let answers = index.put_devices(&key(), &[one_more], NOW).await.unwrap();
    assert_eq!(answers, [Ok(Put::Incomplete { is_new: true, absent: absent.clone() })]);
    assert_eq!(patch(index, "c100", reassign(Some("anna"))).await, Ok(absent));
    let found = devices_of(index, "anna").await;
    let expected: Vec<_> = devices.iter().map(|device| device.client_id.to_string()).collect();
    assert_eq!(found, expected);
    // Those that he has register as before, and one that he loses makes room.
    put(index, &devices[7..9]).await;
    assert!(index.remove_device(&key(), &devices[7].client_id).await.unwrap());
    assert_eq!(patch(index, "c100", reassign(Some("anna"))).await, Ok(Absent::default()));
    assert_eq!(patch(index, "c008", reassign(None)).await, Ok(Absent::default()));
    let found = devices_of(index, "anna").await;
    assert_eq!(found.len(), MAX_USER_DEVICES - 1);
    assert!(found.contains(&"c100".to_owned()) && !found.contains(&"c008".to_owned()));
}

pub(crate) async fn a_device_that_changes_its_user_is_no_device_of_the_former_one(
    index: &dyn Index,
) {
    let of = |id: &str, user: &str| with(id, profile(&[], &[], Some(user)));
    put(index, &[of("a", "anna"), of("b", "anna"), of("c", "ben"), of("d", "ben")]).await;
    assert_eq!(devices_of(index, "anna").await, ["a", "b"]);
    assert_eq!(devices_of(index, "ben").await, ["c", "d"]);
    assert_eq!(patch(index, "a", reassign(Some("ben"))).await, Ok(Absent::default()));
    put(index, &[of("c", "anna"), with("d", Profile::default())]).await;
    assert_eq!(devices_of(index, "anna").await, ["b", "c"]);
    assert_eq!(devices_of(index, "ben").await, ["a"]);
    assert!(index.remove_device(&key(), &client("b")).await.unwrap());
    assert_eq!(devices_of(index, "anna").await, ["c"]);
    let asked = index.user_devices(&key(), &[user("nobody"), user("ben")]).await.unwrap();
    assert_eq!(asked, [vec![], vec![client("a")]]);
    assert!(index.user_devices(&key(), &[]).await.unwrap().is_empty());
    let clients = ["a", "c", "d"].map(client);
    let targets = index.targets(&key(), &clients, TargetFields::Address).await.unwrap();
    let users: Vec<_> = targets.into_iter().map(|target| target.unwrap().user_id).collect();
    assert_eq!(users, [Some(user("ben")), Some(user("anna")), None]);

    // However often and however late, a device belongs to the user of its last change.
    let to_and_fro = (0..20).map(|n| async move {
        let to = if n % 2 == 0 { "anna" } else { "ben" };
        patch(index, "c", reassign(Some(to))).await.unwrap();
    });
    join_all(to_and_fro).await;
    let now = stored(index, "c").await.user_id.unwrap();
    for name in ["anna", "ben"] {
        let has = devices_of(index, name).await.contains(&"c".to_owned());
        assert_eq!(has, now == user(name), "{name}");
    }
}

/// A phone registers while the backend changes what it knows of it, device by device and many at a time.
pub(crate) async fn changes_that_come_together_lose_nothing_of_each_other(index: &dyn Index) {
    put(index, &[with("c", Profile::default()), with("other", Profile::default())]).await;
    let names: Vec<_> = (0..60).map(|n| format!("t{n:02}")).collect();
    let backend = join_all(names.iter().enumerate().map(|(n, name)| async move {
        let mut change = edit(&[name.as_str()], &[]);
        if n % 3 == 0 {
            let id = CustomId(u16::try_from(n).unwrap() + 1);
            change.custom = custom(&[(id, Some("x"))]).custom;
        }
        let both = [(client("c"), change.clone()), (client("other"), change)];
        let own = &both[..1 + n % 2];
        index.patch_devices(&key(), own).await.unwrap();
    }));
    let phone = join_all((0..60).map(|n: usize| async move {
        let model = format!("m{n}");
        let registered = device("c", &[("model", &model)]);
        index.register(&key(), &silent(&registered), None, NOW).await.unwrap().unwrap();
    }));
    join(backend, phone).await;
    let ids = (0..60).step_by(3).map(|n: u16| (CustomId(n + 1), Arc::from("x"))).collect();
    let all: Vec<_> = names.iter().map(String::as_str).collect();
    let expected = Profile { custom: ids, topics: topics(&all), user_id: None };
    assert_eq!(stored(index, "c").await, expected);
    assert_eq!(stored(index, "other").await.topics.len(), 30);
    assert_eq!(scan_all(index, &key(), &having(in_topic("t00")), NOW, 10).await, ["c"]);
    assert_eq!(count_all(index, &having(in_topic("t01")), NOW).await, 2);
    assert_eq!(count_all(index, &Targeting::all_devices(), NOW).await, 2);
}
