//! Queue messages that are delivered again and again, or handed on for as long as the index is away.
//! A broker of the tests counts how often each device receives a message.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use push_tests::{
    RogueBroker, amqp_url, eventually, redis_url,
    rogue_broker::OnPublish,
    servers::Redis,
    service::request,
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::{Value, json};

const QUICK: [&str; 6] =
    ["--tune", "retry-first=200ms", "--tune", "retry-longest=1s", "--tune", "mqtt-ack-timeout=2s"];

/// The device that the broker does not answer.
const SILENT: usize = 0;

struct World {
    broker: RogueBroker,
    stack: Stack,
}

fn topic(device: usize) -> String {
    format!("push/{APP}/device-{device}")
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

    /// The broker leaves the publishes to this device unanswered, or answers them again.
    fn ignore(&self, device: usize, ignored: bool) {
        self.broker.behave(|broker| {
            if ignored {
                broker.topics.insert(topic(device), OnPublish::Ignore);
            } else {
                broker.topics.remove(&topic(device));
            }
        });
    }

    /// How often any device received the message.
    fn received(&self, id: &str) -> u32 {
        self.broker.received_by_topic(id).values().sum()
    }

    /// Sends a push to each of these devices in one request, and returns their ids.
    async fn push_together(&self, devices: &[usize]) -> Vec<String> {
        let lines: Vec<String> = devices.iter().map(|device| to(*device).to_string()).collect();
        let url = format!("{}/v1/message/push/{APP}/batch", self.stack.ingest_url(0));
        let headers =
            [("authorization", self.stack.secret()), ("content-type", "application/x-ndjson")];
        let (status, answers) = request("POST", &url, &headers, &lines.join("\n")).await.unwrap();
        assert_eq!(status, 200, "{answers}");
        let ids = answers.lines().map(|line| {
            let answer: Value = serde_json::from_str(line).unwrap();
            let id = answer["result"]["message_id"].as_str();
            id.unwrap_or_else(|| panic!("{answer}")).to_owned()
        });
        ids.collect()
    }

    async fn no_dead_letters(&self) {
        assert_eq!(self.stack.pushctl(&["dead", "list"]).await, "no dead letters\n");
    }
}

/// How often in a row a push ends its worker: as often as makes a dead letter of an envelope whose
/// deliveries alone are counted.
const DEATHS: usize = 21;
/// After so many deaths the others of the prefetch are answered.
const HELD_BACK: usize = 5;
const INNOCENT: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_ends_its_worker_again_and_again_makes_no_dead_letters_of_others() {
    let world = World::start(redis_url(), 2).await;
    let innocent = 1;
    world.ignore(SILENT, true);
    world.ignore(innocent, true);
    let mut ids = Vec::new();
    for _ in 0..INNOCENT / 2 {
        ids.push(world.stack.push(&to(innocent)).await);
    }
    let guilty = world.stack.push(&to(SILENT)).await;
    for _ in 0..INNOCENT / 2 {
        ids.push(world.stack.push(&to(innocent)).await);
    }
    for death in 1..=DEATHS {
        let before = world.received(&guilty);
        let mut worker = world.stack.start_worker(&QUICK);
        // Every delivery of the guilty one sends it and then ends its worker, but for the delivery
        // that moves it to where it is processed alone.
        eventually("the push that ends the worker is sent", DEADLINE, async || {
            if world.received(&guilty) > before { Ok(()) } else { Err(worker.log()) }
        })
        .await;
        worker.process().kill();
        if death == HELD_BACK {
            world.ignore(innocent, false);
        }
    }
    world.ignore(SILENT, false);
    let _worker = world.stack.worker(&QUICK).await;
    for id in ids.iter().chain([&guilty]) {
        let ledger = world.stack.closed(id).await;
        assert_eq!((&ledger["sent"], &ledger["targeted"]), (&json!(1), &json!(1)), "{ledger}");
        assert!(world.received(id) > 0, "{id}");
    }
    world.no_dead_letters().await;
}

/// How long Redis is frozen. Each message is handed on about once a second meanwhile.
const FROZEN: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn pushes_that_are_handed_on_again_and_again_while_redis_is_frozen_are_sent_afterwards() {
    let redis = Redis::start().await.unwrap();
    let world = World::start(redis.url(), 4).await;
    let impatient = ["--tune", "longest-hold=1ms", "--tune", "index-response-timeout=100ms"];
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

/// Pushes in one request that are answered.
const ANSWERED: usize = 20;
/// How often the worker may acknowledge the envelope before it is killed, on a slow machine.
const TRIES: usize = 5;
/// How soon the envelope of a killed worker is delivered again: long before a task that stands in for
/// a detached run is.
const AGAIN: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_entry_was_evicted_is_not_sent_again_when_its_envelope_comes_again() {
    let world = World::start(redis_url(), 2).await;
    let full = ["--ledger-limit", "1KiB", "--tune", "ledger-check=100ms,mqtt-ack-timeout=30s"];
    let flags = [&QUICK[..4], &full].concat();
    let mut came_again = false;
    for _ in 0..TRIES {
        world.ignore(SILENT, true);
        // One push that is not answered keeps the envelope from being acknowledged for two seconds.
        let ids = world.push_together(&[&[1; ANSWERED][..], &[SILENT]].concat()).await;
        let (silent, answered) = ids.split_last().unwrap();
        let mut worker = world.stack.start_worker(&flags);
        let evicted = eventually("entries of what was sent are evicted", DEADLINE, async || {
            let mut evicted = Vec::new();
            for id in answered {
                if world.received(id) == 1 && world.stack.ledger(id).await.is_null() {
                    evicted.push(id.clone());
                }
            }
            if evicted.is_empty() { Err(worker.log()) } else { Ok(evicted) }
        })
        .await;
        worker.process().kill();
        world.ignore(SILENT, false);
        let _other = world.stack.worker(&flags).await;
        let begun = Instant::now();
        while world.received(silent) < 2 && begun.elapsed() < AGAIN {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        came_again = world.received(silent) > 1;
        // Sent after everything that was delivered again.
        let last = world.stack.push(&to(1)).await;
        eventually("a fresh push is sent", DEADLINE, async || {
            if world.received(&last) == 1 { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        for id in &evicted {
            assert_eq!(world.received(id), 1, "{id} was sent again");
        }
        if came_again {
            break;
        }
    }
    assert!(came_again, "each worker had acknowledged the envelope before it was killed");
    world.no_dead_letters().await;
}
