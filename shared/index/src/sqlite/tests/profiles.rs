//! Custom attributes, topics and users in rows that lost a part.

use push_model::{
    custom::CustomId,
    filter::{Column, Filter, Leaf, Node, Test},
    profile::{DeviceWrite, Profile, ProfileChange, TopicsChange},
};

use super::*;
use crate::{Absent, DictionarySweeps as _, PatchRefused, SweepStep, Users as _};

const PLAN: CustomId = CustomId(1);

fn with(id: &str, plan: &str, topics: &[&str]) -> Device {
    let topics = topics.iter().map(|topic| topic.parse().unwrap()).collect();
    let custom = vec![(PLAN, plan.into())];
    let profile = Profile { custom, topics, user_id: Some("anna".parse().unwrap()) };
    Device { profile, ..device(id, &[(Attribute::Brand, id)]) }
}

/// The devices for which a leaf holds, and those for which its opposite does.
async fn held(index: &SqliteIndex, column: Column, value: &str) -> [Vec<String>; 2] {
    let leaf = Leaf::new(column, None, Test::In(vec![value.into()]));
    let mut held = [Vec::new(), Vec::new()];
    let nodes = [Node::Leaf(0), Node::Not(Box::new(Node::Leaf(0)))];
    for (held, root) in held.iter_mut().zip(nodes) {
        let mut targeting = Targeting::all_devices();
        targeting.filter = Some(Arc::new(Filter::new(vec![leaf.clone()], root).unwrap()));
        let carrier = TransportKind::Mqtt.into();
        let selection = Selection { carrier, targeting: &targeting, registered_by: T0 };
        let range = SlotRange { shard: 0, from: 0, to: u32::MAX };
        let fields = TargetFields::Address;
        let scanned = index.scan(&key(), range, selection, fields, 100).await.unwrap();
        let count = index.count_matching(&key(), range, selection).await.unwrap();
        assert_eq!(count, scanned.items.len() as u64);
        *held = scanned.items.into_iter().map(|target| target.client_id.to_string()).collect();
    }
    held
}

#[tokio::test]
async fn neither_a_test_nor_its_opposite_holds_for_a_value_that_the_dictionary_lost() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let devices = [with("a", "pro", &["f1"]), with("b", "free", &["f2"]), device("c", &[])];
    index.put_devices(&key(), &devices, T0).await.unwrap();
    drop(index);
    let sql = Connection::open(file(&dir)).unwrap();
    sql.execute("DELETE FROM word WHERE value IN ('pro', 'f1')", []).unwrap();
    let index = open(&dir).await;
    let read = index.device(&key(), &devices[0].client_id).await.unwrap();
    let left = Profile { user_id: devices[0].profile.user_id.clone(), ..Profile::default() };
    assert_eq!(read, Some(Device { profile: left, ..devices[0].clone() }), "the rest is there");
    drop(index);
    sql.execute("DELETE FROM word WHERE value = 'A'", []).unwrap();
    let index = open(&dir).await;
    let brand = Column::BuiltIn(Attribute::Brand);
    let strings = |ids: [&[&str]; 2]| {
        ids.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>())
    };
    for (column, value, expected) in [
        (Column::Custom(PLAN), "pro", [&[][..], &["b", "c"]]),
        (Column::Custom(PLAN), "free", [&["b"], &["c"]]),
        (Column::Topic, "f1", [&[], &["b", "c"]]),
        (Column::Topic, "f2", [&["b"], &["c"]]),
        (brand, "A", [&[], &["b", "c"]]),
        (brand, "B", [&["b"], &["c"]]),
    ] {
        let found = held(&index, column, value).await;
        assert_eq!(found, strings(expected), "{column:?} {value}");
    }
    // A change of another part leaves it lost, and a new value ends that.
    let add = TopicsChange::Edit { add: vec!["f3".parse().unwrap()], remove: Vec::new() };
    let change = ProfileChange { topics: add, ..ProfileChange::default() };
    let client = "a".parse().unwrap();
    let patched = index.patch_devices(&key(), &[(client, change)]).await.unwrap();
    assert_eq!(patched, [Ok(Absent::default())]);
    let lost = held(&index, Column::Topic, "f1").await;
    assert_eq!(lost, strings([&[], &["b", "c"]]));
    assert_eq!(held(&index, Column::Topic, "f3").await, strings([&["a"], &["b", "c"]]));
    index.put_devices(&key(), &devices[..1], T0).await.unwrap();
    assert_eq!(held(&index, Column::Custom(PLAN), "pro").await, strings([&["a"], &["b", "c"]]));
    assert_eq!(held(&index, Column::Topic, "f1").await, strings([&["a"], &["b", "c"]]));
}

#[tokio::test]
async fn a_profile_that_cannot_be_read_keeps_no_other_device_and_can_be_replaced() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let devices = [with("a", "pro", &["f1"]), with("b", "free", &["f2"])];
    index.put_devices(&key(), &devices, T0).await.unwrap();
    let sql = Connection::open(file(&dir)).unwrap();
    sql.execute("UPDATE device SET topics = x'00' WHERE client = 'a'", []).unwrap();
    let clients = ["a", "b"].map(|id| id.parse().unwrap());
    let changes = clients.clone().map(|client| (client, ProfileChange::default()));
    let patched = index.patch_devices(&key(), &changes).await.unwrap();
    assert_eq!(patched, [Err(PatchRefused::Unreadable), Ok(Absent::default())]);
    let range = SlotRange { shard: 0, from: 0, to: 9 };
    let listed = index.list_devices(&key(), range, 9).await.unwrap();
    assert_eq!((&*listed.items, listed.unreadable), (&devices[1..], 1));
    index.sweep(&key(), SweepStep::Now).await.unwrap();
    assert_eq!(index.device(&key(), &clients[1]).await.unwrap().as_ref(), Some(&devices[1]));
    let write = DeviceWrite { device: device("a", &[]), change: ProfileChange::default() };
    assert_eq!(index.register(&key(), &write, None, T0).await.unwrap().unwrap().0, Put::Updated);
    index.put_devices(&key(), &devices, T0).await.unwrap();
    assert_eq!(index.device(&key(), &clients[0]).await.unwrap().as_ref(), Some(&devices[0]));
    let found = index.user_devices(&key(), &["anna".parse().unwrap()]).await.unwrap();
    assert_eq!(found, [clients]);
}
