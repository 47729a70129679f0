//! Producers recall a message that is on its way, or post it a second time.

use push_tests::{
    broadcast::{BATCH, STEPS, everyone},
    stack::APP,
};
use serde_json::{Value, json};

use crate::recovery::World;

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_with_one_key_through_two_ingests_are_one_message_sent_once() {
    let mut world = World::start().await;
    world.stack.add_ingest().await;
    let _worker = world.stack.worker(&STEPS).await;
    let key = [("idempotency-key", "order-4711")];
    let path = format!("/v1/message/push/{APP}");
    let body = everyone();
    let (one, two) = tokio::join!(
        world.stack.call_at(0, "POST", &path, &key, &body),
        world.stack.call_at(1, "POST", &path, &key, &body),
    );
    let id = one.1["result"]["message_id"].as_str().unwrap();
    assert_eq!((one.0, two.0), (200, 200));
    assert_eq!(two.1["result"]["message_id"], id);
    world.judge(id, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_stops_a_broadcast_on_all_workers_at_their_next_batch() {
    let world = World::start().await;
    let _workers = [world.stack.worker(&STEPS).await, world.stack.worker(&STEPS).await];
    let id = world.stack.begin_broadcast().await;
    let answer = world.recall(&id).await;
    let ledger = world.accounted_for(&id).await;
    let count = |report: &Value, name: &str| report[name].as_u64().unwrap();
    assert!(count(&ledger, "recalled") > 0, "{ledger}");
    let late = count(&ledger, "sent") - count(&answer, "sent");
    // Each worker may have two tasks in work and one envelope, and so as many batches under way.
    assert!(late <= 2 * 3 * BATCH as u64, "{late} sent after the recall");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_can_be_recalled_before_any_worker_has_begun_it() {
    let world = World::start().await;
    let id = world.stack.push(&everyone()).await;
    assert_eq!(world.stack.ledger(&id).await["state"], "accepted");
    world.recall(&id).await;
    let _worker = world.stack.worker(&STEPS).await;
    let ledger = world.accounted_for(&id).await;
    assert_eq!((&ledger["state"], &ledger["sent"]), (&json!("recalled"), &json!(0)), "{ledger}");
    let fresh = world.stack.push(&everyone()).await;
    for device in &world.devices.all {
        device.wait_for(&fresh).await;
        assert_eq!(device.received().len(), 1, "{} received the recalled one", device.client_id);
    }
}
