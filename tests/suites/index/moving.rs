//! Slots of a cluster that move to another node, key after key. Of a slot that moves, a node serves
//! the keys that it has, and sends those who ask for others elsewhere.

use std::slice::from_ref;

use push_index::{Devices, IndexError, Pacing, Put, redis::RedisIndex};
use push_model::{attributes::Attribute, device::Device};
use push_tests::{namespace, servers::RedisCluster};
use redis::aio::MultiplexedConnection;

use crate::{
    devices::{NOW, client, device, key},
    scanning::{count_all, wanted},
    sent_once::{admin, ask, take},
};

/// A cluster, of which a slot can be moved.
struct Moving {
    namespace: String,
    index: RedisIndex,
    cluster: RedisCluster,
    masters: Vec<MultiplexedConnection>,
    ids: Vec<String>,
}

/// A slot, and where it comes from and goes to.
struct Slot {
    number: String,
    owner: usize,
    heir: usize,
}

impl Moving {
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
        let heir = (owner + 1) % masters.len();
        let (old, new) = (ids[owner].clone(), ids[heir].clone());
        ask(&mut masters[heir], &["CLUSTER", "SETSLOT", &number, "IMPORTING", &old]).await;
        ask(&mut masters[owner], &["CLUSTER", "SETSLOT", &number, "MIGRATING", &new]).await;
        Slot { number, owner, heir }
    }

    /// Moves keys, none of which may be there already.
    async fn migrate(&mut self, slot: &Slot, keys: &[String]) {
        let nodes = self.cluster.nodes();
        let heir = self.ids[slot.heir].clone();
        let mut address = None;
        for node in nodes {
            let mut admin = admin(&node.url()).await;
            if ask(&mut admin, &["CLUSTER", "MYID"]).await == heir {
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

    /// Gives the slot to its heir.
    async fn end(&mut self, slot: &Slot) {
        let left = self.left(slot).await;
        if !left.is_empty() {
            self.migrate(slot, &left).await;
        }
        let new = self.ids[slot.heir].clone();
        for master in [slot.heir, slot.owner] {
            let set = ["CLUSTER", "SETSLOT", &slot.number, "NODE", &new];
            ask(&mut self.masters[master], &set).await;
        }
    }

    /// So many devices of one shard, and the shard's own key.
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
    let mut moving = Moving::new().await;
    let pace = format!("{}:{{{}}}:p", moving.namespace, key());
    let slot = moving.begin(&pace).await;
    assert!(moving.index.take_pace(&key(), &take()).await.unwrap().granted);
    moving.end(&slot).await;
    assert!(moving.index.take_pace(&key(), &take()).await.unwrap().granted);
    let exists = redis::cmd("EXISTS").arg(&pace).to_owned();
    let kept: u32 = exists.query_async(&mut moving.masters[slot.heir]).await.unwrap();
    assert_eq!(kept, 1, "both went to the new owner");
}

/// What a node has not got yet is not taken for what does not exist.
#[tokio::test]
async fn devices_of_a_shard_that_moves_are_registered_whole_or_refused() {
    let mut moving = Moving::new().await;
    let (ids, shard) = moving.of_one_shard(43);
    let mut devices: Vec<_> = ids.iter().map(|id| device(id, &[("country", "CN")])).collect();
    let late = devices.split_off(40);
    moving.index.put_devices(&key(), &devices, NOW).await.unwrap();

    // A node that comes to have the shard's own key first, then the map, and the records last.
    let slot = moving.begin(&shard).await;
    let (map, records): (Vec<_>, Vec<_>) =
        moving.left(&slot).await.into_iter().partition(|key| key.contains(":m"));
    assert!(!map.is_empty());
    let records: Vec<_> = records.into_iter().filter(|key| *key != shard).collect();
    for (moved, new) in [(vec![shard.clone()], &late[0]), (map, &late[1]), (records, &late[2])] {
        moving.migrate(&slot, &moved).await;
        let is_whole = moving.left(&slot).await.is_empty();
        let put = moving.index.put_devices(&key(), from_ref(new), NOW).await;
        match put {
            Err(IndexError::Refused(_)) => {}
            Ok(put) if is_whole => assert_eq!(put, [Ok(Put::Created)]),
            other => panic!("after {moved:?}: {other:?}"),
        }
        let removed = moving.index.remove_device(&key(), &devices[5].client_id).await;
        match removed {
            Err(IndexError::Refused(_)) => {}
            Ok(true) if is_whole => drop(devices.remove(5)),
            other => panic!("after {moved:?}: {other:?}"),
        }
    }
    moving.end(&slot).await;
    for new in &late {
        moving.index.put_devices(&key(), from_ref(new), NOW).await.unwrap();
    }
    devices.extend(late);
    moving.is_stored(&devices).await;
}

/// A column grows when a value with a high number comes to a device behind its end.
#[tokio::test]
async fn a_column_that_grows_while_its_shard_moves_loses_nothing() {
    let mut moving = Moving::new().await;
    let (ids, shard) = moving.of_one_shard(250);
    let values: Vec<_> =
        (0..300).map(|n| device(&format!("v{n}"), &[("model", &format!("m{n}"))])).collect();
    // The numbers of the last ones take two bytes.
    for values in values.chunks(256) {
        moving.index.put_devices(&key(), values, NOW).await.unwrap();
    }
    for value in &values {
        assert!(moving.index.remove_device(&key(), &value.client_id).await.unwrap());
    }
    let of = |id: &str, model: &str| device(id, &[("model", model), ("country", "CN")]);
    let mut devices: Vec<_> = ids.iter().map(|id| of(id, "m1")).collect();
    for device in &mut devices[..3] {
        *device = of(device.client_id.as_str(), "m299");
    }
    // The first slots and the last one: between them the column of high bytes ends.
    for devices in [&devices[..3], &devices[3..249], &devices[249..]] {
        moving.index.put_devices(&key(), devices, NOW).await.unwrap();
    }

    // A device takes its slot again, with a high number behind the end of that column.
    let last = of(ids.last().unwrap(), "m298");
    assert!(moving.index.remove_device(&key(), &last.client_id).await.unwrap());
    let slot = moving.begin(&shard).await;
    let put = moving.index.put_devices(&key(), from_ref(&last), NOW).await;
    assert_eq!(put.unwrap(), [Ok(Put::Created)]);
    moving.end(&slot).await;
    moving.index.put_devices(&key(), from_ref(&last), NOW).await.unwrap();
    *devices.last_mut().unwrap() = last;
    moving.is_stored(&devices).await;
    for (model, count) in [("m299", 3), ("m298", 1), ("m1", 246)] {
        let targeting = wanted(Attribute::Model, &[model]);
        assert_eq!(count_all(&moving.index, &targeting, NOW).await, count, "{model}");
    }
}

async fn is_master(admin: &mut MultiplexedConnection) -> bool {
    ask(admin, &["INFO", "replication"]).await.contains("role:master")
}

/// Which of these nodes has a slot.
async fn owner(masters: &mut [MultiplexedConnection], slot: &str) -> usize {
    for (place, master) in masters.iter_mut().enumerate() {
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
            return place;
        }
    }
    panic!("slot {slot} is not served")
}
