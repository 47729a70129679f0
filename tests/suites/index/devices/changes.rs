//! Registrations of devices whose fields differ from those stored, in Redis: only what differs is
//! written, on condition that the record is still the one that was read.

use std::{slice::from_ref, sync::Arc, time::Duration};

use futures::future::join_all;
use push_index::{Devices, Put, redis::RedisIndex};
use push_model::{attributes::Attribute, device::Device};
use push_tests::{eventually, namespace, servers::Redis};
use redis::aio::MultiplexedConnection;

use crate::index::support::{
    NOW, admin, ask, changes, client, count_all, device, key, scan_all, wanted,
};

const DEADLINE: Duration = Duration::from_secs(30);

fn versioned(id: &str, country: &str, version: &str) -> Device {
    device(id, &[("country", country), ("app_version", version), ("brand", "b")])
}

/// An index with connections and caches of its own, as another program has.
async fn connect(server: &Redis, namespace: &str) -> Arc<RedisIndex> {
    let index = RedisIndex::connect(&server.url(), namespace, Default::default()).await;
    Arc::new(index.unwrap())
}

struct Fixture {
    server: Redis,
    namespace: String,
    index: Arc<RedisIndex>,
    admin: MultiplexedConnection,
}

impl Fixture {
    /// A server with two devices, which differ in two attributes.
    async fn new() -> Self {
        let server = Redis::start().await.unwrap();
        let namespace = namespace();
        let index = connect(&server, &namespace).await;
        let admin = admin(&server.url()).await;
        let both = [versioned("cn", "CN", "1"), versioned("sg", "SG", "2")];
        assert_eq!(
            index.put_devices(&key(), &both, NOW).await.unwrap(),
            [const { Ok(Put::Created) }; 2]
        );
        Self { server, namespace, index, admin }
    }
}

#[tokio::test]
async fn a_changed_attribute_costs_one_write_of_its_code_and_one_of_the_record() {
    let Fixture { server: _server, index, mut admin, .. } = Fixture::new().await;
    // Changes that keep the length of the record, and changes that do not.
    for (again, writes) in [
        (versioned("cn", "SG", "1"), 2),
        (versioned("cn", "CN", "2"), 3),
        (device("cn", &[("brand", "b"), ("token", "t")]), 3),
        (device("cn", &[("brand", "b"), ("token", "another")]), 1),
    ] {
        let before = changes(&mut admin).await;
        assert_eq!(
            index.put_devices(&key(), from_ref(&again), NOW).await.unwrap(),
            [Ok(Put::Updated)]
        );
        assert_eq!(changes(&mut admin).await - before, writes, "{again:?}");
        assert_eq!(index.device(&key(), &again.client_id).await.unwrap(), Some(again));
    }
}

#[tokio::test]
async fn devices_of_one_chunk_and_of_many_that_change_together_are_all_changed() {
    let Fixture { server: _server, index, .. } = Fixture::new().await;
    // About 16 in each shard: one chunk of records, all of which change in the same call.
    let numbers = 0..1000;
    let of_round = |round: usize, version: &str| -> Vec<Device> {
        numbers
            .clone()
            .map(|n| {
                let token = "t".repeat((n * 7 + round * 13) % 300 + 1);
                let fields = [("app_version", version), ("transport", "fcm"), ("token", &token)];
                device(&format!("c{n}"), &fields)
            })
            .collect()
    };
    index.put_devices(&key(), &of_round(0, "1"), NOW).await.unwrap();
    for (round, version, counts) in [(1, "2", [1, 1001]), (2, "1", [1001, 1]), (3, "2", [1, 1001])]
    {
        let devices = of_round(round, version);
        let key = key();
        let put = devices.iter().map(|one| index.put_devices(&key, from_ref(one), NOW));
        for put in join_all(put).await {
            assert_eq!(put.unwrap(), [Ok(Put::Updated)]);
        }
        let stored = devices.iter().map(|one| index.device(&key, &one.client_id));
        for (stored, device) in join_all(stored).await.into_iter().zip(&devices) {
            assert_eq!(stored.unwrap().as_ref(), Some(device));
        }
        for (version, count) in ["1", "2"].into_iter().zip(counts) {
            let targeting = wanted(Attribute::AppVersion, &[version]);
            assert_eq!(count_all(&*index, &targeting, NOW).await, count, "{version}");
        }
    }
}

/// A change is a read followed by a write. Other programs may write in between.
#[tokio::test]
async fn a_change_of_a_device_that_is_another_by_now_registers_it_anew() {
    let Fixture { index, mut admin, server, namespace } = Fixture::new().await;
    let (second, third) = (connect(&server, &namespace).await, connect(&server, &namespace).await);
    // A device of the same shard: it takes the slot of the device that is removed.
    let shard = |id: &str| index.storage_order(&client(id)) >> 40;
    let next = (0..).map(|n| format!("c{n}")).find(|id| shard(id) == shard("cn")).unwrap();
    let next = versioned(&next, "SG", "1");
    let put = |index: &Arc<RedisIndex>, device: &Device| {
        let (index, device) = (Arc::clone(index), device.clone());
        tokio::spawn(async move { index.put_devices(&key(), &[device], NOW).await })
    };

    // A paused server runs waiting scripts in the order in which they came, if it has them all
    // already: so each is run once here.
    for version in ["1", "2"] {
        index.put_devices(&key(), &[versioned("x", "CN", version)], NOW).await.unwrap();
    }
    assert!(index.remove_device(&key(), &client("x")).await.unwrap());
    ask(&mut admin, &["CLIENT", "PAUSE", "60000", "WRITE"]).await;
    let remove = {
        let index = Arc::clone(&index);
        tokio::spawn(async move { index.remove_device(&key(), &client("cn")).await })
    };
    waiting(&admin, 1).await;
    let take_slot = put(&second, &next);
    waiting(&admin, 2).await;
    let change = put(&third, &versioned("cn", "SG", "1"));
    waiting(&admin, 3).await;
    ask(&mut admin, &["CLIENT", "UNPAUSE"]).await;
    assert!(remove.await.unwrap().unwrap());
    for put in [take_slot, change] {
        assert_eq!(put.await.unwrap().unwrap(), [Ok(Put::Created)]);
    }
    for device in [&next, &versioned("cn", "SG", "1")] {
        assert_eq!(index.device(&key(), &device.client_id).await.unwrap().as_ref(), Some(device));
    }

    // Two programs have read the same record, and each changes another attribute.
    ask(&mut admin, &["CLIENT", "PAUSE", "60000", "WRITE"]).await;
    let first = put(&second, &versioned("sg", "CN", "2"));
    waiting(&admin, 1).await;
    let last = put(&third, &versioned("sg", "SG", "1"));
    waiting(&admin, 2).await;
    ask(&mut admin, &["CLIENT", "UNPAUSE"]).await;
    for put in [first, last] {
        assert_eq!(put.await.unwrap().unwrap(), [Ok(Put::Updated)]);
    }
    let all = ["cn", "sg", next.client_id.as_str()];
    for (targeting, count) in [
        (wanted(Attribute::Country, &["CN"]), 0),
        (wanted(Attribute::Country, &["SG"]), 3),
        (wanted(Attribute::AppVersion, &["1"]), 3),
        (wanted(Attribute::AppVersion, &["2"]), 0),
    ] {
        assert_eq!(count_all(&*index, &targeting, NOW).await, count, "{targeting:?}");
        let found = scan_all(&*index, &key(), &targeting, NOW, 10).await;
        assert_eq!(found.len() as u64, count, "{targeting:?}: {found:?} of {all:?}");
    }
}

/// Waits until `count` scripts wait at a paused server.
async fn waiting(admin: &MultiplexedConnection, count: usize) {
    eventually("scripts wait at the server", DEADLINE, async || {
        let clients = ask(&mut admin.clone(), &["CLIENT", "LIST"]).await;
        let waits = |line: &&str| line.contains("flags=b") && line.contains("cmd=eval");
        if clients.lines().filter(waits).count() == count { Ok(()) } else { Err(clients) }
    })
    .await;
}
