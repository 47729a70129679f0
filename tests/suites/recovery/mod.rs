//! A program or a server dies in the middle of a broadcast and comes back: nothing that was
//! answered 200 is lost, nothing is counted twice, and a fresh push arrives. Each test starts the
//! servers that it kills.

mod producers;
mod queue_messages;
mod rabbitmq;
mod signals;
mod workers;

use push_tests::{
    broadcast::{BATCH, STEPS, everyone},
    devices::Devices,
    eventually, ledger_key_pattern, redis_url,
    servers::{Redis, redis_connection},
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::{Value, json};

/// Devices of the transport `discard`.
const CROWD: usize = 40_000;
/// Devices that listen by MQTT.
const LISTENERS: usize = 20;

/// A stack, and devices that listen.
struct World {
    stack: Stack,
    devices: Devices,
}

impl World {
    async fn start() -> Self {
        Self::on(Servers::shared()).await
    }

    /// Starts it on servers of which the test kills one.
    async fn on(servers: Servers) -> Self {
        let mqtt = servers.mqtt.clone();
        let stack = Stack::start(servers).await;
        let ids = stack.import_crowd(CROWD, LISTENERS).await;
        let devices = Devices::listen(&mqtt, APP, &ids).await;
        Self { stack, devices }
    }

    /// Recalls a message through `ingest`; returns the report at that instant.
    async fn recall(&self, id: &str) -> Value {
        let path = format!("/v1/message/{APP}/{id}");
        let (status, answer) = self.stack.call_at(0, "DELETE", &path, &[], &Value::Null).await;
        assert_eq!((status, &answer["result"]["state"]), (200, &json!("recalled")), "{answer}");
        answer["result"].clone()
    }

    /// Waits until every device is counted as sent or recalled.
    async fn accounted_for(&self, id: &str) -> Value {
        eventually("every device is accounted for", DEADLINE, async || {
            let ledger = self.stack.ledger(id).await;
            let count = |name: &str| ledger[name].as_u64().unwrap_or_default();
            let all = (CROWD + LISTENERS) as u64;
            let closed = count("sent") + count("recalled") == all && count("pending") == 0;
            if closed { Ok(ledger) } else { Err(ledger.to_string()) }
        })
        .await
    }

    /// The oracle: the entry closes with every device sent to, every listener has the message,
    /// repeats stay within `repeats` batches, and a fresh push arrives.
    async fn judge(&self, id: &str, repeats: usize) -> Value {
        let ledger = self.stack.closed(id).await;
        let everyone_count = (CROWD + LISTENERS) as u64;
        assert_eq!(ledger["targeted"], everyone_count, "{ledger}");
        assert_eq!(ledger["sent"], everyone_count, "{ledger}");
        assert_eq!(ledger["pending"], 0, "{ledger}");
        let fresh = self.stack.push(&everyone()).await;
        let mut again = 0;
        for device in &self.devices.all {
            device.wait_for(&fresh).await;
            let times = device.received().iter().filter(|payload| payload.contains(id)).count();
            assert!(times > 0, "{} did not receive the message", device.client_id);
            again += times - 1;
        }
        assert!(again <= repeats * BATCH, "{again} repeats");
        assert_eq!(self.stack.pushctl(&["dead", "list"]).await, "no dead letters\n");
        ledger
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_whose_ledger_was_lost_is_begun_again_and_reaches_every_device() {
    let world = World::start().await;
    let _worker = world.stack.worker(&STEPS).await;
    let id = world.stack.begin_broadcast().await;
    // A fail-over loses the writes that the replica did not have yet in the same way.
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = redis_connection(&client).await.unwrap();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(ledger_key_pattern(&id)).query_async(&mut connection).await.unwrap();
    let gone: usize = redis::cmd("DEL").arg(&keys).query_async(&mut connection).await.unwrap();
    assert_eq!(gone, 1, "{keys:?}");
    for device in &world.devices.all {
        device.wait_for(&id).await;
    }
    let fresh = world.stack.push(&everyone()).await;
    world.stack.closed(&fresh).await;
    assert_eq!(world.stack.pushctl(&["dead", "list"]).await, "no dead letters\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_redis_pauses_a_broadcast_and_no_program_has_to_be_restarted() {
    let mut redis = Redis::start().await.unwrap();
    let world = World::on(Servers { redis: redis.url(), ..Servers::shared() }).await;
    let mut worker = world.stack.worker(&STEPS).await;
    let id = world.stack.begin_broadcast().await;
    redis.kill();
    // Known apps are served from memory meanwhile; accepted pushes wait in the queue.
    let (status, answer) = world.stack.try_push(&everyone()).await;
    assert_eq!(status, 200, "{answer}");
    let meanwhile = answer["result"]["message_id"].as_str().unwrap().to_owned();
    redis.restart().await.unwrap();
    worker.wait_ready().await;
    world.judge(&id, 6).await;
    world.stack.closed(&meanwhile).await;
}
