//! Helpers of this suite: devices and the ways to ask for them, and a connection to
//! a Redis server for what the index itself does not do.

use push_tests::servers::redis_connection;
use std::{num::NonZeroU32, sync::Arc};

use push_index::{CarrierExtent, Index, Selection};
use push_model::{
    app::{App, AppKey},
    attributes::Attribute,
    custom::CustomId,
    device::{Carrier, Device, DeviceDraft, TargetFields},
    filter::{Column, Filter, Leaf, Node, Test},
    ids::{AppId, ClientId},
    pace::{Acquire, TrafficClass},
    secret::Secret,
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use redis::aio::MultiplexedConnection;

pub(crate) const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

pub(crate) fn app() -> AppId {
    "app".parse().unwrap()
}

pub(crate) fn key() -> AppKey {
    AppKey::first(app())
}

pub(crate) fn client(id: &str) -> ClientId {
    id.parse().unwrap()
}

/// A device with these fields, checked as a registration is.
pub(crate) fn device(id: &str, fields: &[(&str, &str)]) -> Device {
    let json: serde_json::Map<_, _> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    let json = serde_json::to_string(&json).unwrap();
    let draft: DeviceDraft<'_> = serde_json::from_str(&json).unwrap();
    let checked = draft.check(client(id)).unwrap();
    assert_eq!(checked.warnings, []);
    checked.device
}

/// Makes the app.
pub(crate) async fn create(index: &dyn Index) -> AppKey {
    assert!(index.create_app(&App::new(app(), &Secret::generate(), NOW)).await.unwrap());
    AppKey::from(&index.app(&app()).await.unwrap().unwrap())
}

/// The client ids of the devices that a broadcast would reach, sorted; read `limit` at a time.
pub(crate) async fn scan_all(
    index: &dyn Index,
    app: &AppKey,
    targeting: &Targeting,
    registered_by: UnixMillis,
    limit: usize,
) -> Vec<String> {
    let mut found = Vec::new();
    for CarrierExtent { carrier, ranges } in index.carriers(app).await.unwrap() {
        let read = (carrier, targeting, registered_by);
        found.extend(scan_carrier(index, app, read, ranges, limit).await);
    }
    found.sort();
    found
}

/// The client ids of the devices in the partition of a carrier that has these slots.
pub(crate) async fn scan_carrier(
    index: &dyn Index,
    app: &AppKey,
    (carrier, targeting, registered_by): (Carrier, &Targeting, UnixMillis),
    ranges: Vec<SlotRange>,
    limit: usize,
) -> Vec<String> {
    let mut found = Vec::new();
    for mut range in ranges {
        loop {
            let scan = index.scan(
                app,
                range,
                Selection { carrier, targeting, registered_by },
                TargetFields::Address,
                limit,
            );
            let scanned = scan.await.unwrap();
            assert!(scanned.items.len() <= limit, "{} of {limit}", scanned.items.len());
            found.extend(scanned.items.iter().map(|target| target.client_id.to_string()));
            let Some(next) = scanned.next else { break };
            assert!(range.from < next && next < range.to, "{range:?} goes on at {next}");
            range.from = next;
        }
    }
    found
}

/// Devices that have one of these values.
pub(crate) fn wanted(attribute: Attribute, values: &[&str]) -> Targeting {
    let mut targeting = Targeting::all_devices();
    let values = values.iter().map(|value| attribute.normalise_wanted(value).unwrap());
    targeting.set(attribute, values.collect());
    targeting
}

/// Devices for which a test holds.
pub(crate) fn having(leaf: Leaf) -> Targeting {
    filtered(leaf, Node::Leaf(0))
}

/// Devices for which the opposite of a test holds.
pub(crate) fn not(leaf: Leaf) -> Targeting {
    filtered(leaf, Node::Not(Box::new(Node::Leaf(0))))
}

fn filtered(leaf: Leaf, root: Node) -> Targeting {
    let mut targeting = Targeting::all_devices();
    targeting.filter = Some(Arc::new(Filter::new(vec![leaf], root).unwrap()));
    targeting
}

/// The test for one of these values of a custom attribute.
pub(crate) fn in_custom(id: CustomId, values: &[&str]) -> Leaf {
    let values = values.iter().map(|value| (*value).into()).collect();
    Leaf::new(Column::Custom(id), None, Test::In(values))
}

/// The test for a topic.
pub(crate) fn in_topic(topic: &str) -> Leaf {
    Leaf::new(Column::Topic, None, Test::In(vec![topic.into()]))
}

/// Devices that an engine counts as meant, over all shards.
pub(crate) async fn count_all(
    index: &dyn Index,
    targeting: &Targeting,
    registered_by: UnixMillis,
) -> u64 {
    let (mut count, app) = (0, key());
    for CarrierExtent { carrier, ranges } in index.carriers(&app).await.unwrap() {
        for range in ranges {
            let counted =
                index.count_matching(&app, range, Selection { carrier, targeting, registered_by });
            count += counted.await.unwrap();
        }
    }
    count
}

/// A connection for commands of its own.
pub(crate) async fn admin(url: &str) -> MultiplexedConnection {
    redis_connection(&redis::Client::open(url).unwrap()).await.unwrap()
}

/// Runs a command, and returns its answer as text; empty if the answer is no text.
pub(crate) async fn ask(admin: &mut MultiplexedConnection, words: &[&str]) -> String {
    let mut cmd = redis::cmd(words[0]);
    let answer: redis::Value = cmd.arg(&words[1..]).query_async(admin).await.unwrap();
    redis::from_redis_value(answer).unwrap_or_default()
}

/// Returns how many changes the server has counted.
pub(crate) async fn changes(admin: &mut MultiplexedConnection) -> u64 {
    let info = ask(admin, &["INFO", "persistence"]).await;
    let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    line.unwrap().parse().unwrap()
}

/// One device of a broadcast, at a pace of 10 devices a second.
pub(crate) fn one_device() -> Acquire {
    let pace = NonZeroU32::new(10).unwrap();
    Acquire { devices: 1, pace, class: TrafficClass::Broadcast, now: NOW }
}
