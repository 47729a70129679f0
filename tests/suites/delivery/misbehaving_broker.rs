//! An MQTT broker that is slow, silent, or closes connections.

use push_tests::{amqp_url, eventually, redis_url, rogue_broker::OnPublish, stack::DEADLINE};
use serde_json::json;

use crate::delivery::{World, everyone, topic};

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_never_acknowledged_holds_up_no_other() {
    let world = World::start(amqp_url(), redis_url(), 400).await;
    world.broker.behave(|b| {
        b.topics.insert(topic(7), OnPublish::Ignore);
    });
    let worker = world.worker(&["--tune", "retry-attempts=3"]).await;
    let id = world.stack.push(&everyone(600)).await;
    let ledger = world.stack.closed(&id).await;
    assert_eq!((&ledger["sent"], &ledger["targeted"]), (&json!(399), &json!(400)), "{ledger}");
    assert_eq!(ledger["failed"], json!({"retries_exhausted": 1}), "{ledger}");
    let received = world.received(&id);
    assert_eq!(received.len(), 400);
    let repeated: Vec<_> = received.iter().filter(|(_, received)| **received > 1).collect();
    assert_eq!(repeated, [(&topic(7), &3)], "only the silent device is tried again");
    eventually("the tries without an outcome are counted", DEADLINE, async || {
        // The third try ended with one, and was the last.
        match worker.metric(r#"push_worker_retries_total{reason="unanswered"}"#).await {
            seen if seen >= 2.0 => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_on_which_the_broker_closes_costs_the_others_few_repeats() {
    let world = World::start(amqp_url(), redis_url(), 400).await;
    world.broker.behave(|b| {
        b.topics.insert(topic(7), OnPublish::Close);
    });
    let _worker = world.worker(&["--tune", "retry-attempts=4"]).await;
    let id = world.stack.push(&everyone(600)).await;
    let ledger = world.stack.closed(&id).await;
    assert_eq!((&ledger["sent"], &ledger["targeted"]), (&json!(399), &json!(400)), "{ledger}");
    // A lost connection repeats what was in flight on it. Another device shares a connection with
    // this one at most three times: it is tried in a batch, then in small groups, then alone.
    world.all_received(&id, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_acknowledges_twenty_a_second_makes_progress_without_repeats() {
    let world = World::start(amqp_url(), redis_url(), 240).await;
    world.broker.behave(|b| b.acks_per_second = Some(20));
    let _worker = world.worker(&[]).await;
    let id = world.stack.push(&everyone(600)).await;
    world.stack.under_way(&id).await;
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 240, "{ledger}");
    world.all_received(&id, 1);
}
