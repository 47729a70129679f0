//! Workers that are killed, or told to stop.

use std::fmt::Write as _;

use push_tests::{
    broadcast::{BATCH, STEPS, everyone},
    devices::Devices,
    eventually,
    servers::{Mosquitto, Redis},
    stack::{APP, DEADLINE, Servers, Stack},
};

use crate::recovery::World;

/// Devices of MQTT for which repeats are counted, and how often the worker is killed meanwhile.
const COUNTED: usize = 30_000;
const KILLS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn over_all_devices_a_killed_worker_repeats_at_most_a_batch_for_each_task_it_had() {
    let mqtt = Mosquitto::start().await.unwrap();
    let servers = Servers { mqtt: mqtt.url(), ..Servers::shared() };
    let stack = Stack::start(servers).await;
    let mut lines = String::new();
    for n in 0..COUNTED {
        writeln!(lines, r#"{{"client_id":"device-{n}"}}"#).unwrap();
    }
    stack.import(&lines).await;
    // It receives the messages of every device.
    let listener = Devices::listen(&mqtt.url(), APP, &["#".to_owned()]).await;
    let sent = async |id: &str| stack.ledger(id).await["sent"].as_u64().unwrap_or_default();

    let mut worker = stack.worker(&STEPS).await;
    let id = stack.push(&everyone()).await;
    for _ in 0..KILLS {
        let before = sent(&id).await;
        eventually("the broadcast goes on", DEADLINE, async || {
            let now = sent(&id).await;
            assert!(now < COUNTED as u64, "the broadcast is too short for {KILLS} kills");
            if now > before { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
        worker.process().kill();
        worker = stack.worker(&STEPS).await;
    }
    let ledger = stack.closed(&id).await;
    assert_eq!(ledger["sent"], COUNTED, "{ledger}");
    let fresh = stack.push(&everyone()).await;
    stack.closed(&fresh).await;
    let deliveries = eventually("every device received the fresh push", DEADLINE, async || {
        let received = listener.all[0].received();
        let count = |id: &str| received.iter().filter(|payload| payload.contains(id)).count();
        if count(&fresh) == COUNTED { Ok(count(&id)) } else { Err(count(&fresh).to_string()) }
    })
    .await;
    let repeats = deliveries.checked_sub(COUNTED).expect("every device received it");
    println!("{repeats} repeats over {COUNTED} devices after {KILLS} kills of the worker");
    // It has two tasks and one envelope in work.
    assert!(repeats <= KILLS * 3 * BATCH, "{repeats} repeats");
}

/// Flags of a worker with many tasks at the same time, and a short timeout of the index.
const MANY_PARTITIONS: [&str; 6] = [
    "--batch=50",
    "--tune=partition-min-slots=1000",
    "--partitions=16",
    "--task-prefetch=16",
    "--tune=index-response-timeout=2s",
    "--drain-deadline=8s",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_redis_is_frozen_waits_for_one_time_out_and_not_for_one_a_partition() {
    let redis = Redis::start().await.unwrap();
    let world = World::on(Servers { redis: redis.url(), ..Servers::shared() }).await;
    let worker = world.stack.worker(&MANY_PARTITIONS).await;
    let id = world.stack.begin_broadcast().await;
    redis.freeze().unwrap();
    let stopped = worker.stop().await;
    assert!(stopped.success() && stopped.log.contains("drained"), "{}", stopped.log);
    redis.thaw().unwrap();
    let _other = world.stack.worker(&STEPS).await;
    world.judge(&id, 16 + 1).await;
}
