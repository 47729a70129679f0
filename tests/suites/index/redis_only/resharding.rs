//! Hash slots of a cluster that move to another node, key by key. While a slot moves, each of the
//! two nodes serves the keys that it has, and redirects requests for others.

use std::slice::from_ref;

use push_index::{Devices, Pacing, Put, redis::RedisIndex};
use push_model::{attributes::Attribute, device::Device};
use push_store::IndexError;
use push_tests::{namespace, servers::RedisCluster};
use redis::aio::MultiplexedConnection;

use crate::index::support::{NOW, admin, ask, client, count_all, device, key, one_device, wanted};

/// A cluster whose hash slots can be moved step by step.
struct Resharding {
    namespace: String,
    index: RedisIndex,
    cluster: RedisCluster,
    masters: Vec<MultiplexedConnection>,
    ids: Vec<String>,
}

/// A hash slot, with the indices of the masters from and to which it moves.
struct Slot {
    number: String,
    owner: usize,
    target: usize,
}

impl Resharding {
    async fn new() -> Self {
        let namespace = namespace();
        let mut cluster = RedisCluster::start().await.unwrap();
        let index =
            RedisIndex::connect(&cluster.url(), &namespace, Default::default()).await.unwrap();
        let (mut masters, mut ids) = (Vec::new(), Vec::new());
        for node in cluster.nodes() {
            let mut admin = admin(&node.url()).await;
            if is_master(&mut admin).await {
                ids.push(ask(&mut admin, &["CLUSTER", "MYID"]).await);
                masters.push(admin);
            }
        }
        Self { namespace, index, cluster, masters, ids }
    }

    /// Begins to move the slot of a key.
    async fn begin(&mut self, key: &str) -> Slot {
        let Self { masters, ids, .. } = self;
        let number = redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).to_owned();
        let number: u16 = number.query_async(&mut masters[0]).await.unwrap();
        let number = number.to_string();
        let owner = owner(masters, &number).await;
        let target = (owner + 1) % masters.len();
        let (old, new) = (ids[owner].clone(), ids[target].clone());
        ask(&mut masters[target], &["CLUSTER", "SETSLOT", &number, "IMPORTING", &old]).await;
        ask(&mut masters[owner], &["CLUSTER", "SETSLOT", &number, "MIGRATING", &new]).await;
        Slot { number, owner, target }
    }

    /// Moves keys, none of which may have moved already.
    async fn migrate(&mut self, slot: &Slot, keys: &[String]) {
        let nodes = self.cluster.nodes();
        let target = self.ids[slot.target].clone();
        let mut address = None;
        for node in nodes {
            let mut admin = admin(&node.url()).await;
            if ask(&mut admin, &["CLUSTER", "MYID"]).await == target {
                address = Some(node.url());
            }
        }
        let address = address.unwrap();
        let (host, port) = address.trim_start_matches("redis://").rsplit_once(':').unwrap();
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg(host).arg(port).arg("").arg(0).arg(5000).arg("KEYS").arg(keys);
        let answer: String = migrate.query_async(&mut self.masters[slot.owner]).await.unwrap();
        assert_eq!(answer, "OK");
    }

    /// The keys of a slot that have not moved.
    async fn left(&mut self, slot: &Slot) -> Vec<String> {
        let mut keys = redis::cmd("CLUSTER");
        keys.arg("GETKEYSINSLOT").arg(&slot.number).arg(10_000);
        keys.query_async(&mut self.masters[slot.owner]).await.unwrap()
    }

    /// Moves the keys that are left, and makes the other master the owner of the slot.
    async fn end(&mut self, slot: &Slot) {
        let left = self.left(slot).await;
        if !left.is_empty() {
            self.migrate(slot, &left).await;
        }
        let new = self.ids[slot.target].clone();
        for master in [slot.target, slot.owner] {
            let set = ["CLUSTER", "SETSLOT", &slot.number, "NODE", &new];
            ask(&mut self.masters[master], &set).await;
        }
    }

    /// Client ids of `count` devices of one shard, and the shard's own key.
    fn of_one_shard(&self, count: usize) -> (Vec<String>, String) {
        let shard = |id: &str| self.index.storage_order(&client(id)) >> 40;
        let ids = (0..).map(|n| format!("d{n}")).filter(|id| shard(id) == 7).take(count).collect();
        (ids, format!("{}:{{{}/7}}", self.namespace, key()))
    }

    async fn is_stored(&self, devices: &[Device]) {
        for device in devices {
            let stored = self.index.device(&key(), &device.client_id).await.unwrap();
            assert_eq!(stored.as_ref(), Some(device));
        }
        assert_eq!(self.index.count_devices(&key()).await.unwrap(), devices.len() as u64);
    }
}

#[tokio::test]
async fn a_write_goes_to_the_node_that_a_cluster_names_while_its_keys_are_on_their_way() {
    let mut cluster = Resharding::new().await;
    let pace = format!("{}:{{{}}}:p", cluster.namespace, key());
    let slot = cluster.begin(&pace).await;
    assert!(cluster.index.acquire_pace(&key(), &one_device()).await.unwrap().granted);
    cluster.end(&slot).await;
    assert!(cluster.index.acquire_pace(&key(), &one_device()).await.unwrap().granted);
    let exists = redis::cmd("EXISTS").arg(&pace).to_owned();
    let kept: u32 = exists.query_async(&mut cluster.masters[slot.target]).await.unwrap();
    assert_eq!(kept, 1, "both went to the new owner");
}

/// A key that has not moved to the new node yet must not be taken for one that does not exist.
#[tokio::test]
async fn devices_of_a_shard_that_moves_are_registered_whole_or_refused() {
    let mut cluster = Resharding::new().await;
    let (ids, shard) = cluster.of_one_shard(43);
    let mut devices: Vec<_> = ids.iter().map(|id| device(id, &[("country", "CN")])).collect();
    let late = devices.split_off(40);
    cluster.index.put_devices(&key(), &devices, NOW).await.unwrap();

    // The shard's own key moves first, then the map, and the records last.
    let slot = cluster.begin(&shard).await;
    let (map, records): (Vec<_>, Vec<_>) =
        cluster.left(&slot).await.into_iter().partition(|key| key.contains(":m"));
    assert!(!map.is_empty());
    let records: Vec<_> = records.into_iter().filter(|key| *key != shard).collect();
    for (moved, new) in [(vec![shard.clone()], &late[0]), (map, &late[1]), (records, &late[2])] {
        cluster.migrate(&slot, &moved).await;
        let is_whole = cluster.left(&slot).await.is_empty();
        let put = cluster.index.put_devices(&key(), from_ref(new), NOW).await;
        match put {
            Err(IndexError::Refused(_)) => {}
            Ok(put) if is_whole => assert_eq!(put, [Ok(Put::Created)]),
            other => panic!("after {moved:?}: {other:?}"),
        }
        let removed = cluster.index.remove_device(&key(), &devices[5].client_id).await;
        match removed {
            Err(IndexError::Refused(_)) => {}
            Ok(true) if is_whole => drop(devices.remove(5)),
            other => panic!("after {moved:?}: {other:?}"),
        }
    }
    cluster.end(&slot).await;
    for new in &late {
        cluster.index.put_devices(&key(), from_ref(new), NOW).await.unwrap();
    }
    devices.extend(late);
    cluster.is_stored(&devices).await;
}

/// A column of high bytes grows when a device behind its end gets a value with a code of two bytes.
#[tokio::test]
async fn a_column_that_grows_while_its_shard_moves_loses_nothing() {
    let mut cluster = Resharding::new().await;
    let (ids, shard) = cluster.of_one_shard(250);
    let values: Vec<_> =
        (0..300).map(|n| device(&format!("v{n}"), &[("model", &format!("m{n}"))])).collect();
    // The codes of the last values have two bytes.
    for values in values.chunks(256) {
        cluster.index.put_devices(&key(), values, NOW).await.unwrap();
    }
    for value in &values {
        assert!(cluster.index.remove_device(&key(), &value.client_id).await.unwrap());
    }
    let of = |id: &str, model: &str| device(id, &[("model", model), ("country", "CN")]);
    let mut devices: Vec<_> = ids.iter().map(|id| of(id, "m1")).collect();
    for device in &mut devices[..3] {
        *device = of(device.client_id.as_str(), "m299");
    }
    // Devices with high codes have the first slots only, so the column of high bytes ends there.
    for devices in [&devices[..3], &devices[3..249], &devices[249..]] {
        cluster.index.put_devices(&key(), devices, NOW).await.unwrap();
    }

    // The last device takes its slot again, with a high code behind the end of that column.
    let last = of(ids.last().unwrap(), "m298");
    assert!(cluster.index.remove_device(&key(), &last.client_id).await.unwrap());
    let slot = cluster.begin(&shard).await;
    let put = cluster.index.put_devices(&key(), from_ref(&last), NOW).await;
    assert_eq!(put.unwrap(), [Ok(Put::Created)]);
    cluster.end(&slot).await;
    cluster.index.put_devices(&key(), from_ref(&last), NOW).await.unwrap();
    *devices.last_mut().unwrap() = last;
    cluster.is_stored(&devices).await;
    for (model, count) in [("m299", 3), ("m298", 1), ("m1", 246)] {
        let targeting = wanted(Attribute::Model, &[model]);
        assert_eq!(count_all(&cluster.index, &targeting, NOW).await, count, "{model}");
    }
}

async fn is_master(admin: &mut MultiplexedConnection) -> bool {
    ask(admin, &["INFO", "replication"]).await.contains("role:master")
}

/// The index of the node that owns a hash slot.
async fn owner(masters: &mut [MultiplexedConnection], slot: &str) -> usize {
    for (index, master) in masters.iter_mut().enumerate() {
        let mut count = redis::cmd("CLUSTER");
        count.arg("NODES");
        let nodes: String = count.query_async(master).await.unwrap();
        let slot: u16 = slot.parse().unwrap();
        let mine = nodes.lines().find(|line| line.contains("myself")).unwrap();
        let ranges = mine.split_whitespace().skip(8).filter(|range| !range.starts_with('['));
        let has = |range: &str| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            (from.parse::<u16>().unwrap()..=to.parse::<u16>().unwrap()).contains(&slot)
        };
        if ranges.into_iter().any(has) {
            return index;
        }
    }
    panic!("slot {slot} is not served")
}
