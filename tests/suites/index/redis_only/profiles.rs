//! What Redis keeps of the profiles of devices, and what a fail-over may take of it.

use std::{sync::Arc, time::Duration};

use push_index::{
    Apps, Devices, DictionarySweeps, SweepStep, Users, count_audience, redis::RedisIndex,
};
use push_model::{
    app::{App, AppKey},
    custom::{CustomId, ValueType},
    device::Device,
    filter::{Column, Filter, Leaf, Node, Test},
    ids::{ClientId, UserId},
    message::Audience,
    profile::{DeviceWrite, ProfileChange, TopicsChange},
    secret::Secret,
    targeting::Targeting,
};
use push_tests::{namespace, redis_url};
use redis::{FromRedisValue, aio::MultiplexedConnection};
use tokio::time::timeout;

use crate::index::support::{NOW, admin, app, client, count_all, device, key, scan_all};

const PLAN: CustomId = CustomId(1);

async fn begin() -> (RedisIndex, String, MultiplexedConnection) {
    let namespace = namespace();
    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    (index, namespace, admin(&redis_url()).await)
}

async fn ask<T: FromRedisValue>(redis: &mut MultiplexedConnection, words: &[&str]) -> T {
    redis::cmd(words[0]).arg(&words[1..]).query_async(redis).await.unwrap()
}

/// A device with a plan, topics and a user.
fn with_profile(id: &str, plan: &str, topics: &[&str], user: &str) -> Device {
    let mut device = device(id, &[("country", "SG")]);
    if !plan.is_empty() {
        device.profile.custom = vec![(PLAN, plan.into())];
    }
    device.profile.topics = topics.iter().map(|topic| topic.parse().unwrap()).collect();
    device.profile.user_id = user.parse().ok();
    device
}

/// Devices that have one of these values in a column, or have none of them.
fn asking(column: Column, values: &[&str], negated: bool) -> Targeting {
    let values = values.iter().map(|value| (*value).into()).collect();
    let leaf = Leaf::new(column, None, Test::In(values));
    let root = match negated {
        true => Node::Not(Box::new(Node::Leaf(0))),
        false => Node::Leaf(0),
    };
    let mut targeting = Targeting::all_devices();
    targeting.filter = Some(Arc::new(Filter::new(vec![leaf], root).unwrap()));
    targeting
}

/// The devices that match, which are also counted as devices of partitions and as an audience.
async fn found(index: &RedisIndex, targeting: &Targeting) -> Vec<String> {
    let found = scan_all(index, &key(), targeting, NOW, 500).await;
    assert_eq!(count_all(index, targeting, NOW).await, found.len() as u64);
    let audience = Audience::Targeting(targeting.clone());
    let counts = count_audience(index, &key(), &audience).await.unwrap();
    assert_eq!(counts.devices, found.len() as u64, "{targeting:?}");
    found
}

#[tokio::test]
async fn a_topic_reaches_its_devices_while_it_grows_to_thousands_in_a_segment_and_shrinks_again() {
    let (index, namespace, mut redis) = begin().await;
    // All in one shard, and so in one segment.
    let ids = (0..).map(|n| format!("c{n}").parse::<ClientId>().unwrap());
    let ids: Vec<ClientId> =
        ids.filter(|id| index.storage_order(id) >> 40 == 5).take(2200).collect();
    let of = |at: usize| {
        let topics: &[&str] = if at.is_multiple_of(700) { &["all", "few"] } else { &["all"] };
        with_profile(ids[at].as_str(), "", topics, "")
    };
    let all: Vec<Device> = (0..ids.len()).map(of).collect();
    let form = async |redis: &mut MultiplexedConnection, code: &str| {
        let members = format!("{namespace}:{{{}/5}}:w0", key());
        ask::<Vec<u8>>(redis, &["HGET", &members, code]).await.len()
    };
    let reached = async |topic: &str| found(&index, &asking(Column::Topic, &[topic], false)).await;
    let not_reached =
        async |topic: &str| found(&index, &asking(Column::Topic, &[topic], true)).await;
    for (count, bytes) in [(2000, 4000), (2046, 4092), (2047, 4095), (2200, 4095)] {
        index.put_devices(&key(), &all[..count], NOW).await.unwrap();
        assert_eq!(form(&mut redis, "1").await, bytes, "{count}");
        assert_eq!((reached("all").await.len(), not_reached("all").await.len()), (count, 0));
        assert_eq!(reached("few").await.len(), count.div_ceil(700));
    }
    let sorted = |some: &[ClientId]| {
        let mut ids: Vec<String> = some.iter().map(ToString::to_string).collect();
        ids.sort();
        ids
    };
    // A thousand lose the topic, one by one or with their registration.
    let leave = |id: &ClientId| {
        let topics = TopicsChange::Edit { add: Vec::new(), remove: vec!["all".parse().unwrap()] };
        (id.clone(), ProfileChange { topics, ..Default::default() })
    };
    let left: Vec<_> = ids[1000..1600].iter().map(leave).collect();
    for patched in index.patch_devices(&key(), &left).await.unwrap() {
        assert!(patched.unwrap().is_empty());
    }
    for id in &ids[1600..2000] {
        assert!(index.remove_device(&key(), id).await.unwrap());
    }
    let kept = [&ids[..1000], &ids[2000..]].concat();
    assert_eq!(form(&mut redis, "1").await, 4095, "it stays a bitmap");
    assert_eq!(reached("all").await, sorted(&kept));
    assert_eq!(not_reached("all").await, sorted(&ids[1000..1600]));
    for id in &ids[2000..] {
        assert!(index.remove_device(&key(), id).await.unwrap());
    }
    assert_eq!(form(&mut redis, "1").await, 2000, "it is a list again");
    assert_eq!(reached("all").await, sorted(&ids[..1000]));
    let others: Vec<_> = ids[..1000].iter().map(leave).collect();
    index.patch_devices(&key(), &others).await.unwrap();
    let members = format!("{namespace}:{{{}/5}}:w0", key());
    assert_eq!(ask::<Vec<String>>(&mut redis, &["HKEYS", &members]).await, ["2"]);
    assert_eq!(
        reached("few").await,
        sorted(&[ids[0].clone(), ids[700].clone(), ids[1400].clone()])
    );
}

#[tokio::test]
async fn a_device_without_a_profile_takes_no_byte_more_than_one_whose_profile_was_taken_away() {
    let (index, namespace, mut redis) = begin().await;
    let bare = device("c", &[("country", "SG")]);
    index.put_devices(&key(), std::slice::from_ref(&bare), NOW).await.unwrap();
    let shard = index.storage_order(&bare.client_id) >> 40;
    let chunk = format!("{namespace}:{{{}/{shard}}}:d0", key());
    let before: Vec<u8> = ask(&mut redis, &["GET", &chunk]).await;
    index.put_devices(&key(), &[with_profile("c", "pro", &["f1"], "u")], NOW).await.unwrap();
    let with: Vec<u8> = ask(&mut redis, &["GET", &chunk]).await;
    // Its length, two numbers, an attribute, a topic and the user.
    assert_eq!(with.len(), before.len() + 2 + 2 + 4 + 2 + 1);
    index.put_devices(&key(), &[bare], NOW).await.unwrap();
    assert_eq!(ask::<Vec<u8>>(&mut redis, &["GET", &chunk]).await, before);
    let members = format!("{namespace}:{{{}/{shard}}}:w0", key());
    assert_eq!(ask::<u8>(&mut redis, &["EXISTS", &members]).await, 0);
}

#[tokio::test]
async fn a_value_or_topic_that_the_dictionary_lost_matches_neither_itself_nor_its_opposite() {
    let (index, namespace, mut redis) = begin().await;
    let devices = [
        with_profile("kept", "pro", &["f1"], ""),
        with_profile("lost", "team", &["gone"], ""),
        with_profile("both", "team", &["f1", "gone"], ""),
        device("none", &[]),
    ];
    for device in &devices {
        index.put_devices(&key(), std::slice::from_ref(device), NOW).await.unwrap();
    }
    for (column, value) in [("c1", "team"), ("w", "gone")] {
        let key_of = |kind: &str| format!("{namespace}:{{{}}}:{kind}{column}", key());
        assert_eq!(ask::<String>(&mut redis, &["RPOP", &key_of("v")]).await, value);
        assert_eq!(ask::<u8>(&mut redis, &["HDEL", &key_of("s"), value]).await, 1);
    }
    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let plan = Column::Custom(PLAN);
    for (column, value, negated, expected) in [
        (plan, "pro", false, &["kept"][..]),
        (plan, "pro", true, &["none"]),
        (plan, "team", false, &[]),
        (plan, "team", true, &["kept", "none"]),
        (Column::Topic, "f1", false, &["both", "kept"]),
        (Column::Topic, "f1", true, &["none"]),
        (Column::Topic, "gone", false, &[]),
        (Column::Topic, "gone", true, &["kept", "none"]),
    ] {
        let targeting = asking(column, &[value], negated);
        assert_eq!(found(&index, &targeting).await, expected, "{column:?} {value} {negated}");
    }
    let read = index.device(&key(), &client("both")).await.unwrap().unwrap();
    assert_eq!((read.profile.custom.len(), read.profile.topics.len()), (0, 1));
    // What a registration does not name is still what cannot be known.
    let mut phone = DeviceWrite { device: device("both", &[]), change: ProfileChange::default() };
    phone.device.token = Some("other".into());
    index.write_devices(&key(), &[phone], NOW).await.unwrap().remove(0).unwrap();
    assert_eq!(found(&index, &asking(plan, &["pro"], true)).await, ["none"]);
}

#[tokio::test]
async fn a_device_that_a_fail_over_took_from_its_user_comes_back_with_its_next_registration() {
    let (index, namespace, mut redis) = begin().await;
    let user: UserId = "u".parse().unwrap();
    let write = DeviceWrite::from(with_profile("c", "", &[], "u"));
    index.register(&key(), &write, None, NOW).await.unwrap().unwrap();
    let lists: Vec<String> = ask(&mut redis, &["KEYS", &format!("{namespace}:{{app/u*}}")]).await;
    let [list] = &*lists else { panic!("{lists:?}") };
    let devices = async || {
        let users = std::slice::from_ref(&user);
        index.user_devices(&key(), users).await.unwrap().remove(0)
    };
    assert_eq!(devices().await, [client("c")]);
    // A phone that changes nothing, a phone that says nothing of its user, and one with another token.
    let mut silent = write.clone();
    silent.change = ProfileChange::default();
    let mut moved = silent.clone();
    moved.device.token = Some("other".into());
    for write in [&write, &silent, &moved] {
        ask::<u8>(&mut redis, &["DEL", list]).await;
        assert!(devices().await.is_empty());
        index.register(&key(), write, None, NOW).await.unwrap().unwrap();
        assert_eq!(devices().await, [client("c")]);
    }
    // The list alone makes no device one of the user's.
    ask::<u8>(&mut redis, &["HDEL", list, "u"]).await;
    assert!(index.remove_device(&key(), &client("c")).await.unwrap());
    let stale: &[u8] = b"\0\0\0\0\0\0\x01c";
    let mut set = redis::cmd("HSET");
    set.arg(list).arg("u").arg(stale).query_async::<u8>(&mut redis).await.unwrap();
    assert!(devices().await.is_empty());
    assert_eq!(ask::<u8>(&mut redis, &["EXISTS", list]).await, 0, "what is stale is taken away");
}

#[tokio::test]
async fn a_user_who_has_a_hundred_devices_gets_another_when_one_of_them_has_gone() {
    let (index, ..) = begin().await;
    let of = |n: usize, user: &str| with_profile(&format!("c{n:03}"), "", &[], user);
    let hundred: Vec<_> = (0..100).map(|n| of(n, "u")).collect();
    for put in index.put_devices(&key(), &hundred, NOW).await.unwrap() {
        assert!(put.unwrap().absent().is_empty());
    }
    let one_more = async || {
        let put = index.put_devices(&key(), &[of(100, "u")], NOW).await.unwrap().remove(0);
        put.unwrap().absent().user_id
    };
    assert!(one_more().await);
    let stored = index.device(&key(), &client("c100")).await.unwrap().unwrap();
    assert_eq!(stored.profile.user_id, None);
    index.put_devices(&key(), &[of(7, "other")], NOW).await.unwrap();
    assert!(!one_more().await);
    let devices = index.user_devices(&key(), &["u".parse().unwrap()]).await.unwrap().remove(0);
    assert_eq!((devices.len(), devices.contains(&client("c007"))), (100, false));
}

#[tokio::test]
async fn a_device_that_a_fail_over_took_from_its_user_comes_back_although_he_has_a_hundred_others()
{
    let (index, namespace, mut redis) = begin().await;
    let of = |n: usize| with_profile(&format!("c{n:03}"), "", &[], "u");
    index.put_devices(&key(), &[of(0), of(1)], NOW).await.unwrap();
    let lists: Vec<String> = ask(&mut redis, &["KEYS", &format!("{namespace}:{{app/u*}}")]).await;
    ask::<u8>(&mut redis, &["DEL", &lists[0]]).await;
    let others: Vec<_> = (2..102).map(of).collect();
    for put in index.put_devices(&key(), &others, NOW).await.unwrap() {
        assert!(put.unwrap().absent().is_empty());
    }
    let silent = DeviceWrite { device: of(0), change: ProfileChange::default() };
    index.register(&key(), &silent, None, NOW).await.unwrap().unwrap();
    index.register(&key(), &of(1).into(), None, NOW).await.unwrap().unwrap();
    let devices =
        async || index.user_devices(&key(), &["u".parse().unwrap()]).await.unwrap().remove(0);
    assert_eq!(devices().await.len(), 102);
    // Others find no room until there are fewer than a hundred again.
    let put = index.put_devices(&key(), &[of(102)], NOW).await.unwrap().remove(0);
    assert!(put.unwrap().absent().user_id);
    for id in devices().await {
        assert!(index.remove_device_of(&key(), &"u".parse().unwrap(), &id).await.unwrap());
    }
    assert!(devices().await.is_empty());
}

#[tokio::test]
async fn a_removed_app_leaves_no_profile_and_no_user_behind() {
    let (index, namespace, mut redis) = begin().await;
    index.create_app(&App::new(app(), &Secret::generate(), NOW)).await.unwrap();
    let key = AppKey::from(&index.app(&app()).await.unwrap().unwrap());
    let devices: Vec<_> = (0..200)
        .map(|n| with_profile(&format!("c{n}"), "pro", &["f1"], &format!("u{n}")))
        .collect();
    index.put_devices(&key, &devices, NOW).await.unwrap();
    assert!(index.remove_app(&app()).await.unwrap());
    let mut bare = device("late", &[]);
    bare.profile.user_id = "late".parse().ok();
    for late in [&devices[0], &bare] {
        let put = index.put_devices(&key, std::slice::from_ref(late), NOW).await.unwrap();
        assert!(put[0].is_err());
    }
    let mut left: Vec<String> = ask(&mut redis, &["KEYS", &format!("{namespace}:{{app*")]).await;
    left.retain(|key| key.contains('/') && !key.ends_with('}'));
    assert_eq!(left, [""; 0]);
    // Lists refuse devices for as long as shards do, and then go by themselves.
    let lists: Vec<String> = ask(&mut redis, &["KEYS", &format!("{namespace}:{{{key}/u*}}")]).await;
    assert_eq!(lists.len(), 256);
    for list in lists {
        assert_eq!(ask::<Vec<String>>(&mut redis, &["HKEYS", &list]).await, [""], "{list}");
        let ttl: i64 = ask(&mut redis, &["TTL", &list]).await;
        assert!(ttl > 0, "{list} {ttl}");
    }
    let dictionaries = ["vc1", "sc1", "vw", "sw", "d"];
    for name in dictionaries {
        let ttl: i64 = ask(&mut redis, &["TTL", &format!("{namespace}:{{{key}}}:{name}")]).await;
        assert!(ttl > 0, "{name} {ttl}");
    }
}

#[tokio::test]
async fn an_attribute_that_is_declared_no_more_leaves_its_planes_and_its_values_to_a_sweep() {
    let (index, namespace, mut redis) = begin().await;
    let mut record = App::new(app(), &Secret::generate(), NOW);
    let declared = &mut record.attributes;
    declared.add("plan".parse().unwrap(), ValueType::String).unwrap();
    declared.add("team".parse().unwrap(), ValueType::String).unwrap();
    assert!(index.create_app(&record).await.unwrap());
    let team = CustomId(2);
    let mut devices: Vec<_> =
        (0..50).map(|n| with_profile(&format!("c{n}"), &format!("p{n}"), &[], "")).collect();
    devices.iter_mut().for_each(|device| device.profile.custom.push((team, "red".into())));
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    let keys = async |redis: &mut MultiplexedConnection| {
        let keys: Vec<String> = ask(redis, &["KEYS", &format!("{namespace}:{{app*c1*")]).await;
        keys.len()
    };
    assert!(keys(&mut redis).await > 10);
    let mut record = index.app(&app()).await.unwrap().unwrap();
    record.attributes.remove("plan").unwrap();
    assert!(index.update_app(&record).await.unwrap());
    let retired = index.sweep(&key(), SweepStep::Now).await.unwrap();
    let freed = index.sweep(&key(), SweepStep::Now).await.unwrap();
    assert_eq!((retired.retired, freed.freed), (50, 50));
    assert_eq!(keys(&mut redis).await, 0);
    let reds = found(&index, &asking(Column::Custom(team), &["red"], false)).await;
    assert_eq!(reds.len(), 50);
    let read = timeout(Duration::from_secs(9), index.device(&key(), &client("c7"))).await.unwrap();
    assert_eq!(read.unwrap().unwrap().profile.custom, vec![(team, Arc::from("red"))]);
}
