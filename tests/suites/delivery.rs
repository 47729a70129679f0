//! The promises of the delivery protocol, through faults without a crash: a store that refuses or
//! forgets, a broker that is slow, silent or blocked. An MQTT broker of the tests counts the
//! copies that each device gets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};

use push_tests::{
    RogueBroker, amqp_url, eventually, redis_url,
    rogue_broker::OnPublish,
    servers::{RabbitMq, Redis},
    service::Program,
    stack::{APP, PATIENCE, Servers, Stack},
};
use serde_json::{Value, json};

/// Flags of a worker: small steps, and another try soon.
const QUICK: [&str; 16] = [
    "--batch",
    "100",
    "--strand-min-slots",
    "500",
    "--strands",
    "4",
    "--turn",
    "200ms",
    "--retry-first",
    "200ms",
    "--retry-longest",
    "1s",
    "--mqtt-ack-timeout",
    "2s",
    "--index-pause-longest",
    "500ms",
];

/// A stack whose devices are counted by a broker of the tests.
struct World {
    broker: RogueBroker,
    stack: Stack,
    devices: usize,
}

fn everyone(time_to_live: u32) -> Value {
    json!({
        "type": 2, "time_to_live": time_to_live, "data": {"k": "v"}, "condition": {"type": 0}
    })
}

fn topic(device: usize) -> String {
    format!("push/{APP}/device-{device}")
}

impl World {
    async fn start(amqp: String, redis: String, devices: usize) -> Self {
        let broker = RogueBroker::start().await;
        let stack = Stack::start(Servers { amqp, redis, mqtt: broker.url() }).await;
        let mut lines = String::new();
        for n in 0..devices {
            writeln!(lines, r#"{{"client_id":"device-{n}"}}"#).unwrap();
        }
        stack.import(&lines).await;
        Self { broker, stack, devices }
    }

    async fn worker(&self, more: &[&str]) -> Program {
        let flags: Vec<&str> = QUICK.iter().chain(more).copied().collect();
        self.stack.worker(&flags).await
    }

    /// Pushes to everyone and waits until some devices, but not all, have it.
    async fn begin(&self, time_to_live: u32) -> String {
        let id = self.stack.push(&everyone(time_to_live)).await;
        self.stack.under_way(&id).await;
        id
    }

    /// How many copies each device got.
    fn copies(&self, id: &str) -> BTreeMap<String, u32> {
        self.broker.copies(id)
    }

    /// Every device got the message, and none more often than this.
    fn all_received(&self, id: &str, most: u32) {
        let copies = self.copies(id);
        assert_eq!(copies.len(), self.devices, "devices were left out");
        let worst = copies.iter().max_by_key(|(_, copies)| **copies);
        assert!(worst.is_some_and(|(_, &copies)| copies <= most), "{worst:?} of {most}");
    }

    async fn no_dead_letters(&self) {
        assert_eq!(self.stack.pushctl(&["dead", "list"]).await, "no dead letters\n");
    }
}

/// Waits until a worker says that it waits.
async fn waits(worker: &Program, what: &str) {
    eventually(&format!("the worker is {what}"), PATIENCE, async || {
        let log = worker.log();
        if log.contains(what) { Ok(()) } else { Err(log) }
    })
    .await;
}

/// Redis refuses writes in the middle of a broadcast and goes on later: nothing is lost, nothing is
/// sent twice, nothing is a dead letter.
async fn refused(refuse: &[&str], allow: &[&str]) {
    let redis = Redis::start().await.unwrap();
    let world = World::start(amqp_url(), redis.url(), 3000).await;
    world.broker.behave(|b| b.acks_per_second = Some(1500));
    let worker = world.worker(&[]).await;
    let id = world.begin(600).await;
    let client = redis::Client::open(redis.url()).unwrap();
    let mut admin = client.get_multiplexed_async_connection().await.unwrap();
    let mut tell = async |command: &[&str]| {
        let mut cmd = redis::cmd(command[0]);
        cmd.arg(&command[1..]).query_async::<redis::Value>(&mut admin).await.unwrap();
    };
    tell(refuse).await;
    let named = json!({
        "type": 2, "time_to_live": 600, "data": {"k": "v"},
        "condition": {"type": 2, "client_ids": ["device-1", "device-2"]}
    });
    let meanwhile = world.stack.push(&named).await;
    waits(&worker, "waiting for the index").await;
    tell(allow).await;
    let ledger = world.stack.settled(&id).await;
    assert_eq!((&ledger["sent"], &ledger["targeted"]), (&json!(3000), &json!(3000)), "{ledger}");
    world.all_received(&id, 1);
    assert_eq!(world.stack.settled(&meanwhile).await["sent"], 2);
    assert_eq!(world.copies(&meanwhile).values().collect::<Vec<_>>(), [&1, &1]);
    world.no_dead_letters().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_a_replica_pushes_wait_and_then_each_device_gets_one_copy() {
    refused(&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_lacks_replicas_pushes_wait_and_then_each_device_gets_one_copy() {
    let set = |replicas| ["CONFIG", "SET", "min-replicas-to-write", replicas];
    refused(&set("1"), &set("0")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_out_of_memory_pushes_wait_and_then_each_device_gets_one_copy() {
    let set = |bytes| ["CONFIG", "SET", "maxmemory", bytes];
    refused(&set("1"), &set("0")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_never_acknowledged_holds_up_no_other() {
    let world = World::start(amqp_url(), redis_url(), 400).await;
    world.broker.behave(|b| {
        b.topics.insert(topic(7), OnPublish::Ignore);
    });
    let _worker = world.worker(&["--retry-attempts", "3"]).await;
    let id = world.stack.push(&everyone(600)).await;
    let ledger = world.stack.settled(&id).await;
    assert_eq!((&ledger["sent"], &ledger["targeted"]), (&json!(399), &json!(400)), "{ledger}");
    assert_eq!(ledger["failed"], json!({"retries_exhausted": 1}), "{ledger}");
    let copies = world.copies(&id);
    assert_eq!(copies.len(), 400);
    let repeated: Vec<_> = copies.iter().filter(|(_, copies)| **copies > 1).collect();
    assert_eq!(repeated, [(&topic(7), &3)], "only the silent device is tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_on_which_the_broker_closes_costs_the_others_few_repeats() {
    let world = World::start(amqp_url(), redis_url(), 400).await;
    world.broker.behave(|b| {
        b.topics.insert(topic(7), OnPublish::Close);
    });
    let _worker = world.worker(&["--retry-attempts", "4"]).await;
    let id = world.stack.push(&everyone(600)).await;
    let ledger = world.stack.settled(&id).await;
    assert_eq!((&ledger["sent"], &ledger["targeted"]), (&json!(399), &json!(400)), "{ledger}");
    // A lost connection repeats what was in flight on it: a device is on three that it shares with
    // the bad one, in a batch, in a small group, and not once it is tried alone.
    world.all_received(&id, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_acknowledges_twenty_a_second_makes_progress_without_repeats() {
    let world = World::start(amqp_url(), redis_url(), 240).await;
    world.broker.behave(|b| b.acks_per_second = Some(20));
    let _worker = world.worker(&[]).await;
    let id = world.stack.push(&everyone(600)).await;
    world.stack.under_way(&id).await;
    let ledger = world.stack.settled(&id).await;
    assert_eq!(ledger["sent"], 240, "{ledger}");
    world.all_received(&id, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_rabbitmq_blocks_publishers_no_copies_pile_up() {
    let amqp = RabbitMq::start().await.unwrap();
    let world = World::start(amqp.url(), redis_url(), 6000).await;
    world.broker.behave(|b| b.acks_per_second = Some(1000));
    let workers = [world.worker(&[]).await, world.worker(&[]).await, world.worker(&[]).await];
    let id = world.begin(600).await;
    amqp.control(&["set_vm_memory_high_watermark", "0"]).await.unwrap();
    // The length of the fault: longer than a publisher waits at a time.
    tokio::time::sleep(Duration::from_secs(25)).await;
    amqp.control(&["set_vm_memory_high_watermark", "0.9"]).await.unwrap();
    let ledger = world.stack.settled(&id).await;
    assert_eq!(ledger["sent"], 6000, "{ledger}");
    world.all_received(&id, 1);
    world.no_dead_letters().await;
    drop(workers);
}

/// Copies what Redis has on disk, as of one instant.
fn copy_of_data(redis: &Redis, to: &Path) {
    redis.freeze().unwrap();
    let from = redis.folder().join("appendonlydir");
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    redis.thaw().unwrap();
}

/// Redis comes back with what it had on disk earlier.
async fn restart_with(redis: &mut Redis, older: &Path) {
    redis.kill();
    let folder = redis.folder().join("appendonlydir");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    for file in std::fs::read_dir(older).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    redis.restart().await.unwrap();
}

/// Looks at the ledger soon after a message is over.
const SOON: [&str; 4] = ["--closing-check", "1s", "--closing-rest", "2s"];

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgot_the_middle_of_a_broadcast_costs_one_repeat_and_no_device() {
    let mut redis = Redis::start().await.unwrap();
    redis.sync_always().await.unwrap();
    let world = World::start(amqp_url(), redis.url(), 6000).await;
    world.broker.behave(|b| b.acks_per_second = Some(1500));
    let _worker = world.worker(&SOON).await;
    let id = world.begin(600).await;
    let older = tempfile::tempdir().unwrap();
    copy_of_data(&redis, older.path());
    let before = world.broker.acknowledged();
    eventually("the broadcast goes on", PATIENCE, async || {
        let now = world.broker.acknowledged();
        if now > before + 1000 { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
    restart_with(&mut redis, older.path()).await;
    let ledger = world.stack.settled(&id).await;
    assert_eq!((&ledger["sent"], &ledger["targeted"]), (&json!(6000), &json!(6000)), "{ledger}");
    world.all_received(&id, 2);
    world.no_dead_letters().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgot_the_end_of_a_broadcast_still_closes_its_ledger() {
    let mut redis = Redis::start().await.unwrap();
    redis.sync_always().await.unwrap();
    let world = World::start(amqp_url(), redis.url(), 3000).await;
    world.broker.behave(|b| b.acks_per_second = Some(1500));
    let _worker = world.worker(&SOON).await;
    let id = world.begin(15).await;
    let older = tempfile::tempdir().unwrap();
    copy_of_data(&redis, older.path());
    world.stack.settled(&id).await;
    restart_with(&mut redis, older.path()).await;
    let ledger = eventually("the ledger closes", PATIENCE, async || {
        let ledger = world.stack.ledger(&id).await;
        if ledger["state"] == "expired" { Ok(ledger) } else { Err(ledger.to_string()) }
    })
    .await;
    assert_eq!((&ledger["targeted"], &ledger["pending"]), (&json!(3000), &json!(0)), "{ledger}");
    let unrecorded = ledger["failed"]["unrecorded"].as_u64().unwrap_or_default();
    assert_eq!(ledger["sent"].as_u64().unwrap() + unrecorded, 3000, "{ledger}");
    world.all_received(&id, 2);
    world.no_dead_letters().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_whose_ledger_entry_cannot_be_read_becomes_a_dead_letter() {
    let world = World::start(amqp_url(), redis_url(), 3).await;
    let _worker = world.worker(&SOON).await;
    let id = world.stack.push(&everyone(60)).await;
    world.stack.settled(&id).await;
    let server = redis::Client::open(redis_url()).unwrap();
    let mut redis = server.get_multiplexed_async_connection().await.unwrap();
    let find = redis::cmd("KEYS").arg(format!("{}:*m{id}", world.stack.namespace)).to_owned();
    let entries: Vec<String> = find.query_async(&mut redis).await.unwrap();
    let mut damage = redis::cmd("HSET");
    damage.arg(&entries[0]).arg("sent").arg("many");
    assert_eq!(damage.query_async::<u32>(&mut redis).await.unwrap(), 0);
    let dead = eventually("the closing check is put aside", PATIENCE, async || {
        let dead = world.stack.pushctl(&["dead", "list", "--json"]).await;
        let dead: Vec<Value> = serde_json::from_str(&dead).unwrap();
        if dead.is_empty() { Err("no dead letter".to_owned()) } else { Ok(dead) }
    })
    .await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!(dead[0]["lane"], "tasks");
    assert!(dead[0]["reason"].as_str().unwrap().contains("sent"), "{dead:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_request_with_one_key_is_sent_if_the_first_expired_unsent() {
    let world = World::start(amqp_url(), redis_url(), 3).await;
    let path = format!("/v1/message/push/{APP}");
    let key = [("idempotency-key", "order-4711")];
    let push = async |time_to_live| {
        let body = everyone(time_to_live);
        let (status, answer) = world.stack.call_at(0, "POST", &path, &key, &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["message_id"].as_str().unwrap().to_owned()
    };
    let first = push(1).await;
    // Its time to live, which no worker uses.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let second = push(600).await;
    assert_eq!(first, second);
    let _worker = world.worker(&[]).await;
    let ledger = world.stack.settled(&second).await;
    assert_eq!(ledger["sent"], 3, "{ledger}");
    world.all_received(&second, 1);
}
