//! Queue messages that are handed on while the index is away.
//! A broker of the tests counts how often each device receives a message.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use push_tests::{
    RogueBroker, amqp_url,
    servers::Redis,
    stack::{Servers, Stack},
};
use serde_json::{Value, json};

const QUICK: [&str; 6] =
    ["--retry-first", "200ms", "--retry-longest", "1s", "--mqtt-ack-timeout", "2s"];

struct World {
    broker: RogueBroker,
    stack: Stack,
}

fn to(device: usize) -> Value {
    let condition = json!({"type": 2, "client_ids": [format!("device-{device}")]});
    json!({"type": 2, "time_to_live": 600, "data": {"k": "v"}, "condition": condition})
}

impl World {
    async fn start(redis: String, devices: usize) -> Self {
        let broker = RogueBroker::start().await;
        let stack = Stack::start(Servers { amqp: amqp_url(), redis, mqtt: broker.url() }).await;
        let mut lines = String::new();
        for n in 0..devices {
            writeln!(lines, r#"{{"client_id":"device-{n}"}}"#).unwrap();
        }
        stack.import(&lines).await;
        Self { broker, stack }
    }

    /// Returns how often any device received the message.
    fn received(&self, id: &str) -> u32 {
        self.broker.received_by_topic(id).values().sum()
    }

    async fn no_dead_letters(&self) {
        assert_eq!(self.stack.pushctl(&["dead", "list"]).await, "no dead letters\n");
    }
}

/// Time for which Redis is frozen. Each message is handed on about once a second meanwhile.
const FROZEN: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread")]
async fn pushes_that_are_handed_on_again_and_again_while_redis_is_frozen_are_sent_afterwards() {
    let redis = Redis::start().await.unwrap();
    let world = World::start(redis.url(), 4).await;
    let impatient = ["--hold", "1ms", "--index-response-timeout", "100ms"];
    let worker = world.stack.worker(&[&QUICK[..], &impatient].concat()).await;
    // Afterwards `ingest` and the worker know the app.
    let first = world.stack.push(&to(0)).await;
    world.stack.closed(&first).await;
    redis.freeze().unwrap();
    let begun = Instant::now();
    let mut ids = Vec::new();
    for device in 1..4 {
        ids.push(world.stack.push(&to(device)).await);
    }
    let took = begun.elapsed();
    // The length of the fault. Requests made meanwhile wait in the sockets of Redis, so claims of
    // all the successive messages arrive when it goes on.
    tokio::time::sleep(FROZEN.saturating_sub(took)).await;
    redis.thaw().unwrap();
    for id in &ids {
        let ledger = world.stack.closed(id).await;
        assert_eq!((&ledger["sent"], &ledger["targeted"]), (&json!(1), &json!(1)), "{ledger}");
        assert_eq!(world.received(id), 1, "{id}");
    }
    world.no_dead_letters().await;
    drop(worker);
}
