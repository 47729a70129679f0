//! A ledger that loses its last writes, or that holds an entry which cannot be read.

use push_tests::{
    amqp_url, eventually, ledger_key_pattern, redis_url, servers::Redis, servers::redis_connection,
    stack::DEADLINE,
};
use serde_json::{Value, json};

use crate::delivery::{World, everyone};

/// Flags of a worker whose closing checks come soon after a message expires.
const SOON: [&str; 4] = ["--tune", "closing-check=1s", "--tune", "closing-rest=2s"];

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lost_the_middle_of_a_broadcast_costs_one_repeat_and_no_device() {
    let mut redis = Redis::start().await.unwrap();
    redis.sync_always().await.unwrap();
    let world = World::start(amqp_url(), redis.url(), 6000).await;
    world.broker.behave(|b| b.acks_per_second = Some(1500));
    let _worker = world.worker(&SOON).await;
    let id = world.begin(600).await;
    let snapshot = redis.snapshot_files().unwrap();
    let before = world.broker.acknowledged();
    eventually("the broadcast goes on", DEADLINE, async || {
        let now = world.broker.acknowledged();
        if now > before + 1000 { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
    redis.kill_and_restore(&snapshot).unwrap();
    redis.restart().await.unwrap();
    let ledger = world.stack.closed(&id).await;
    assert_eq!((&ledger["sent"], &ledger["targeted"]), (&json!(6000), &json!(6000)), "{ledger}");
    world.all_received(&id, 2);
    world.no_dead_letters().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lost_the_end_of_a_broadcast_still_closes_its_ledger() {
    let mut redis = Redis::start().await.unwrap();
    redis.sync_always().await.unwrap();
    let world = World::start(amqp_url(), redis.url(), 3000).await;
    world.broker.behave(|b| b.acks_per_second = Some(1500));
    let _worker = world.worker(&SOON).await;
    let id = world.begin(15).await;
    let snapshot = redis.snapshot_files().unwrap();
    world.stack.closed(&id).await;
    redis.kill_and_restore(&snapshot).unwrap();
    redis.restart().await.unwrap();
    let ledger = eventually("the ledger closes", DEADLINE, async || {
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
    world.stack.closed(&id).await;
    let server = redis::Client::open(redis_url()).unwrap();
    let mut redis = redis_connection(&server).await.unwrap();
    let find = redis::cmd("KEYS").arg(ledger_key_pattern(&id)).to_owned();
    let entries: Vec<String> = find.query_async(&mut redis).await.unwrap();
    let mut damage = redis::cmd("HSET");
    damage.arg(&entries[0]).arg("sent").arg("many");
    assert_eq!(damage.query_async::<u32>(&mut redis).await.unwrap(), 0);
    let dead = eventually("the closing check becomes a dead letter", DEADLINE, async || {
        let dead = world.stack.pushctl(&["dead", "list", "--json"]).await;
        let dead: Vec<Value> = serde_json::from_str(&dead).unwrap();
        if dead.is_empty() { Err("no dead letter".to_owned()) } else { Ok(dead) }
    })
    .await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!(dead[0]["lane"], "tasks");
    assert!(dead[0]["reason"].as_str().unwrap().contains("sent"), "{dead:?}");
}
