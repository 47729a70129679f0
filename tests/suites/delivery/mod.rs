//! The promises of the delivery protocol through faults without a crash: stores that refuse or lose
//! writes, a broker or a transport that is slow, silent or gone. A broker of the tests counts the deliveries to
//! each device. What a transport that never answers for some devices does to others is tested in the worker's
//! own package (`fanout-worker/tests/worker/tail.rs`).

mod lost_writes;
mod misbehaving_broker;
mod refusals;
mod transports;

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use push_tests::{
    RogueBroker, amqp_url, eventually, redis_url,
    service::Program,
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::{Value, json};

/// Flags of a worker: small batches, and short pauses before another try.
const QUICK: [&str; 8] = [
    "--batch=100",
    "--tune=partition-min-slots=500",
    "--partitions=4",
    "--tune=run-time=200ms",
    "--tune=retry-first=200ms",
    "--tune=retry-longest=1s",
    "--tune=mqtt-ack-timeout=2s",
    "--tune=index-pause-longest=500ms",
];

/// A stack that sends to a broker of the tests, which counts the messages of each device.
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

    /// Pushes to every device and waits until some of them, but not all, have the message.
    async fn begin(&self, time_to_live: u32) -> String {
        let id = self.stack.push(&everyone(time_to_live)).await;
        self.stack.under_way(&id).await;
        id
    }

    /// Returns how often each device received the message.
    fn received(&self, id: &str) -> BTreeMap<String, u32> {
        self.broker.received_by_topic(id)
    }

    /// Every device got the message, and none more often than `most` times.
    fn all_received(&self, id: &str, most: u32) {
        let received = self.received(id);
        assert_eq!(received.len(), self.devices, "devices were left out");
        let worst = received.iter().max_by_key(|(_, received)| **received);
        assert!(worst.is_some_and(|(_, &received)| received <= most), "{worst:?} of {most}");
    }

    async fn no_dead_letters(&self) {
        assert_eq!(self.stack.pushctl(&["dead", "list"]).await, "no dead letters\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_request_with_one_key_is_sent_if_the_first_expired_unsent() {
    let world = World::start(amqp_url(), redis_url(), 3).await;
    let path = format!("/v1/message/push/{APP}");
    let key = [("idempotency-key", "order-4711")];
    let push = async || {
        let body = everyone(5);
        let (status, answer) = world.stack.call_at(0, "POST", &path, &key, &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["message_id"].as_str().unwrap().to_owned()
    };
    let first = push().await;
    // No worker runs until its time to live of 5 s is over.
    tokio::time::sleep(Duration::from_millis(5500)).await;
    let second = push().await;
    assert_eq!(first, second);
    let _worker = world.worker(&[]).await;
    let ledger = world.stack.closed(&second).await;
    assert_eq!(ledger["sent"], 3, "{ledger}");
    world.all_received(&second, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_bodies_with_one_key_the_first_is_sent_and_the_second_is_refused_or_dropped() {
    let mut world = World::start(amqp_url(), redis_url(), 3).await;
    world.stack.add_ingest().await;
    world.stack.add_ingest().await;
    let [other, third] = [1, 2];
    let world = world;
    let path = format!("/v1/message/push/{APP}");
    let key = [("idempotency-key", "order-4712")];
    let push = async |ingest, time_to_live| {
        let body = everyone(time_to_live);
        let (status, answer) = world.stack.call_at(ingest, "POST", &path, &key, &body).await;
        (status, answer)
    };
    // No worker has begun it, and the other ingest has not seen it.
    let (status, first) = push(0, 600).await;
    assert_eq!(status, 200, "{first}");
    assert_eq!(push(0, 601).await.0, 422, "the same ingest has seen it");
    assert_eq!(push(other, 601).await.0, 200, "nobody can know yet");
    let id = first["result"]["message_id"].as_str().unwrap();
    let worker = world.worker(&[]).await;
    let dropped = r#"push_worker_dropped_copies_total{body="other"}"#;
    eventually("the second body is dropped", DEADLINE, async || {
        match worker.metric(dropped).await {
            1.0 => Ok(()),
            found => Err(found.to_string()),
        }
    })
    .await;
    world.stack.closed(id).await;
    world.all_received(id, 1);
    // Both were in one prefetch, so either may have been begun first.
    let answers = [push(third, 600).await, push(third, 601).await];
    let mut statuses = answers.clone().map(|(status, _)| status);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 422], "the ledger knows the one that was sent: {answers:?}");
}
