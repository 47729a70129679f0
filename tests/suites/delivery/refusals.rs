//! Stores that refuse writes for a while: Redis for each of its reasons, and RabbitMQ that blocks
//! publishers.

use std::time::Duration;

use push_tests::{
    amqp_url, eventually, redis_url,
    servers::{RabbitMq, Redis, Refusal},
    service::Program,
    stack::DEADLINE,
};
use serde_json::json;

use crate::delivery::World;

/// Waits until the worker logs this.
async fn logs(worker: &Program, what: &str) {
    eventually(&format!("the worker logs {what:?}"), DEADLINE, async || {
        let log = worker.log();
        if log.contains(what) { Ok(()) } else { Err(log) }
    })
    .await;
}

/// Redis refuses writes in the middle of a broadcast and accepts them again later: nothing is lost,
/// nothing is sent twice, and there is no dead letter.
async fn refused(why: Refusal) {
    let redis = Redis::start().await.unwrap();
    let world = World::start(amqp_url(), redis.url(), 3000).await;
    world.broker.behave(|b| b.acks_per_second = Some(1500));
    let worker = world.worker(&[]).await;
    let id = world.begin(600).await;
    redis.refuse_writes(why, true).await.unwrap();
    let named = json!({
        "type": 2, "time_to_live": 600, "data": {"k": "v"},
        "condition": {"type": 2, "client_ids": ["device-1", "device-2"]}
    });
    let meanwhile = world.stack.push(&named).await;
    logs(&worker, "waiting for the index").await;
    redis.refuse_writes(why, false).await.unwrap();
    let ledger = world.stack.closed(&id).await;
    assert_eq!((&ledger["sent"], &ledger["targeted"]), (&json!(3000), &json!(3000)), "{ledger}");
    world.all_received(&id, 1);
    assert_eq!(world.stack.closed(&meanwhile).await["sent"], 2);
    assert_eq!(world.received(&meanwhile).values().collect::<Vec<_>>(), [&1, &1]);
    let made_again = worker.metric(r#"push_worker_store_retries_total{store="index"}"#).await;
    assert!(made_again > 0.0, "the requests that the index refused");
    world.no_dead_letters().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_a_replica_pushes_wait_and_then_each_device_receives_one_message() {
    refused(Refusal::Replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_out_of_memory_pushes_wait_and_then_each_device_receives_one_message() {
    refused(Refusal::OutOfMemory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_rabbitmq_blocks_publishers_no_copies_pile_up() {
    let amqp = RabbitMq::start().await.unwrap();
    let world = World::start(amqp.url(), redis_url(), 6000).await;
    world.broker.behave(|b| b.acks_per_second = Some(1000));
    let flags = ["--tune", "queue-timeout=4s"];
    let workers =
        [world.worker(&flags).await, world.worker(&flags).await, world.worker(&flags).await];
    let id = world.begin(600).await;
    amqp.control(&["set_vm_memory_high_watermark", "0"]).await.unwrap();
    // The length of the fault: longer than a publisher waits for one confirm.
    tokio::time::sleep(Duration::from_secs(6)).await;
    amqp.control(&["set_vm_memory_high_watermark", "0.9"]).await.unwrap();
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 6000, "{ledger}");
    world.all_received(&id, 1);
    world.no_dead_letters().await;
    drop(workers);
}
