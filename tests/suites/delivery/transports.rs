//! A broadcast over two transports, one of them slow, silent or gone; and the messages that a slow one still
//! gets after a recall or a stop.

use std::{fmt::Write as _, num::NonZeroU16, time::Duration};

use push_tests::{
    amqp_url, eventually, redis_url,
    service::Program,
    stack::{APP, DEADLINE},
};
use serde_json::json;
use tokio::time::Instant;

use crate::delivery::{World, everyone, topic};

/// Far less than a silent or dead broker costs its own devices.
const SOON: Duration = Duration::from_secs(10);

/// Flags of a worker: short pauses before another try, and a broker that is waited for longer than all
/// measured times.
const PATIENT: [&str; 7] = [
    "--tune=partition-min-slots=500",
    "--partitions=4",
    "--tune=run-time=200ms",
    "--tune=retry-first=200ms",
    "--tune=retry-longest=1s",
    "--tune=mqtt-ack-timeout=20s",
    "--tune=mqtt-offline-timeout=20s",
];

impl World {
    /// Adds devices that are reached over another transport, which is always there.
    async fn add_discarded(&self, devices: usize) {
        let mut lines = String::new();
        for n in 0..devices {
            writeln!(lines, r#"{{"client_id":"other-{n}","transport":"discard"}}"#).unwrap();
        }
        self.stack.import(&lines).await;
    }

    /// Waits until so many devices were sent to.
    async fn sent_to(&self, id: &str, devices: u64) {
        eventually(&format!("{devices} devices are sent to"), DEADLINE, async || {
            let ledger = self.stack.ledger(id).await;
            if ledger["sent"].as_u64() >= Some(devices) { Ok(()) } else { Err(ledger.to_string()) }
        })
        .await;
    }

    fn messages(&self, id: &str) -> u32 {
        self.received(id).values().sum()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_reaches_the_devices_of_one_transport_while_another_is_silent_or_gone() {
    let world = World::start(amqp_url(), redis_url(), 600).await;
    world.add_discarded(4000).await;
    let worker = world.stack.worker(&PATIENT).await;
    world.broker.behave(|b| b.withholds_acks = true);
    let begun = Instant::now();
    let silent = world.stack.push(&everyone(600)).await;
    world.sent_to(&silent, 4000).await;
    assert!(begun.elapsed() < SOON, "{:?} while it was silent", begun.elapsed());

    world.broker.behave(|b| b.refuses_connections = true);
    world.broker.close_connections();
    let begun = Instant::now();
    let gone = world.stack.push(&everyone(600)).await;
    world.sent_to(&gone, 4000).await;
    assert!(begun.elapsed() < SOON, "{:?} while it was gone", begun.elapsed());

    world.broker.behave(|b| (b.withholds_acks, b.refuses_connections) = (false, false));
    for id in [&silent, &gone] {
        let ledger = world.stack.closed(id).await;
        assert_eq!(ledger["sent"], 4600, "{ledger}");
    }
    world.all_received(&gone, 1);
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envelope_of_pushes_to_named_devices_ends_while_a_silent_transport_holds_some_of_them() {
    let world = World::start(amqp_url(), redis_url(), 40).await;
    world.add_discarded(40).await;
    let worker = world.stack.worker(&PATIENT).await;
    world.broker.behave(|b| b.withholds_acks = true);
    let push = |n: usize| {
        let clients = [format!("device-{n}"), format!("other-{n}")];
        json!({
            "type": 2, "time_to_live": 600, "data": {"k": "v"},
            "condition": {"type": 2, "client_ids": clients}
        })
    };
    let mut ids = Vec::new();
    for n in 0..40 {
        ids.push(world.stack.push(&push(n)).await);
    }
    let begun = Instant::now();
    for id in &ids {
        world.sent_to(id, 1).await;
    }
    eventually("the envelopes are settled", SOON, async || {
        match worker.metric(r#"push_worker_in_work{lane="jobs"}"#).await {
            0.0 => Ok(()),
            left => Err(left.to_string()),
        }
    })
    .await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    world.broker.behave(|b| b.withholds_acks = false);
    for id in &ids {
        let ledger = world.stack.closed(id).await;
        assert_eq!(ledger["sent"], 2, "{ledger}");
        assert_eq!(world.messages(id), 1, "it was answered late, and is not sent again");
    }
}

/// A broadcast to 400 devices whose broker is slow, when it has sent to some of them.
async fn slow_broker() -> (World, Program, String) {
    let world = World::start(amqp_url(), redis_url(), 400).await;
    world.broker.behave(|b| {
        b.acks_per_second = Some(20);
        b.receive_maximum = NonZeroU16::new(10).unwrap();
    });
    let worker = world.stack.worker(&PATIENT).await;
    let id = world.stack.push(&everyone(600)).await;
    eventually("the broker is sent to", DEADLINE, async || match world.messages(&id) {
        sent if sent > 50 => Ok(()),
        sent => Err(sent.to_string()),
    })
    .await;
    (world, worker, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_answer_of_a_recall_a_slow_broker_is_sent_nothing_more() {
    let (world, _worker, id) = slow_broker().await;
    let path = format!("/v1/message/{APP}/{id}");
    let (status, answer) = world.stack.call_at(0, "DELETE", &path, &[], &json!({})).await;
    assert_eq!(status, 200, "{answer}");
    let at_answer = world.messages(&id);
    eventually("the rest is counted", DEADLINE, async || {
        let ledger = world.stack.ledger(&id).await;
        if ledger["pending"] == 0 && ledger["recalled"].as_u64() > Some(0) {
            Ok(())
        } else {
            Err(ledger.to_string())
        }
    })
    .await;
    assert_eq!(world.messages(&id), at_answer);
    assert!(at_answer < 300, "{at_answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_returns_what_a_slow_broker_was_not_sent() {
    let (world, worker, id) = slow_broker().await;
    let begun = Instant::now();
    assert!(worker.stop().await.success());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    world.broker.behave(|b| b.acks_per_second = None);
    let _next = world.worker(&[]).await;
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 400, "{ledger}");
    world.all_received(&id, 1);
    assert_eq!(world.received(&id).get(&topic(7)), Some(&1));
}
