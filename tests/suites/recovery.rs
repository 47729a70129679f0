//! A part dies in the middle of a broadcast and comes back: nothing that was answered 200 is
//! lost, nothing is counted twice, and a fresh push flows. Each test has servers of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends where something is wrong, and says what it counted"
)]

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use push_queue::amqp::queue_names;
use push_tests::{
    amqp_url,
    broadcast::{BATCH, STEPS, everyone},
    devices::Devices,
    eventually, redis_url,
    servers::{Mosquitto, RabbitMq, Redis},
    service::{Program, pushctl_output},
    stack::{APP, PATIENCE, Servers, Stack},
};
use serde_json::{Value, json};

/// Devices that are sent to without a broker.
const CROWD: usize = 40_000;
/// Devices that listen.
const LISTENERS: usize = 20;

/// Servers that a test may kill, the stack on them, and devices that listen.
struct World {
    amqp: RabbitMq,
    redis: Redis,
    mqtt: Mosquitto,
    stack: Stack,
    devices: Devices,
}

impl World {
    async fn start() -> Self {
        let (amqp, redis, mqtt) =
            tokio::try_join!(RabbitMq::start(), Redis::start(), Mosquitto::start()).unwrap();
        let servers = Servers { amqp: amqp.url(), redis: redis.url(), mqtt: mqtt.url() };
        let stack = Stack::start(servers).await;
        // RabbitMQ 3.10 forgets a queue whose name had no time to reach the disk.
        for queue in queue_names(&stack.namespace).unwrap() {
            amqp.wait_until_known_on_disk(&queue).await;
        }
        let ids = stack.import_crowd(CROWD, LISTENERS).await;
        let devices = Devices::listen(&mqtt.url(), APP, &ids).await;
        Self { amqp, redis, mqtt, stack, devices }
    }

    /// Recalls a message through `ingest`; gives the report at that instant.
    async fn recall(&self, id: &str) -> Value {
        let path = format!("/v1/message/{APP}/{id}");
        let (status, answer) = self.stack.call_at(0, "DELETE", &path, &[], &Value::Null).await;
        assert_eq!((status, &answer["result"]["state"]), (200, &json!("recalled")), "{answer}");
        answer["result"].clone()
    }

    /// Waits until everybody is sent to or recalled.
    async fn accounted_for(&self, id: &str) -> Value {
        eventually("everybody is accounted for", PATIENCE, async || {
            let ledger = self.stack.ledger(id).await;
            let count = |name: &str| ledger[name].as_u64().unwrap_or_default();
            let all = (CROWD + LISTENERS) as u64;
            let settled = count("sent") + count("recalled") == all && count("pending") == 0;
            if settled { Ok(ledger) } else { Err(ledger.to_string()) }
        })
        .await
    }

    /// The oracle: the ledger closes over everyone, every listener has the message, repeats stay
    /// within `repeats` batches, and a fresh push flows. `sent` may lack listeners that were
    /// away.
    async fn judge(&self, id: &str, repeats: usize) -> Value {
        let ledger = self.stack.settled(id).await;
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
async fn a_killed_worker_loses_nothing_and_repeats_at_most_a_batch_for_each_strand_in_flight() {
    let world = World::start().await;
    let mut killed = world.stack.worker(&STEPS).await;
    let id = world.stack.begin_broadcast().await;
    killed.process().kill();
    let before = world.stack.ledger(&id).await;
    assert_eq!(before["state"], "sending", "{before}");
    let _other = world.stack.worker(&STEPS).await;
    // The worker had two tasks in flight and one envelope.
    world.judge(&id, 3).await;
}

/// Devices that are sent to by MQTT where repeats are counted, and kills meanwhile.
const COUNTED: usize = 30_000;
const KILLS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn over_all_devices_a_killed_worker_repeats_at_most_a_batch_for_each_task_it_had() {
    let mqtt = Mosquitto::start().await.unwrap();
    let servers = Servers { amqp: amqp_url(), redis: redis_url(), mqtt: mqtt.url() };
    let stack = Stack::start(servers).await;
    let mut lines = String::new();
    for n in 0..COUNTED {
        writeln!(lines, r#"{{"client_id":"device-{n}"}}"#).unwrap();
    }
    stack.import(&lines).await;
    // It hears every device.
    let ear = Devices::listen(&mqtt.url(), APP, &["#".to_owned()]).await;
    let sent = async |id: &str| stack.ledger(id).await["sent"].as_u64().unwrap_or_default();

    let mut worker = stack.worker(&STEPS).await;
    let id = stack.push(&everyone()).await;
    for _ in 0..KILLS {
        let before = sent(&id).await;
        eventually("the broadcast goes on", PATIENCE, async || {
            let now = sent(&id).await;
            assert!(now < COUNTED as u64, "the broadcast is too short for {KILLS} kills");
            if now > before { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
        worker.process().kill();
        worker = stack.worker(&STEPS).await;
    }
    let ledger = stack.settled(&id).await;
    assert_eq!(ledger["sent"], COUNTED, "{ledger}");
    let fresh = stack.push(&everyone()).await;
    stack.settled(&fresh).await;
    let heard = eventually("all of the fresh push is heard", PATIENCE, async || {
        let heard = ear.all[0].received();
        let count = |id: &str| heard.iter().filter(|payload| payload.contains(id)).count();
        if count(&fresh) == COUNTED { Ok(count(&id)) } else { Err(count(&fresh).to_string()) }
    })
    .await;
    let repeats = heard.checked_sub(COUNTED).expect("everybody received it");
    println!("{repeats} repeats over {COUNTED} devices after {KILLS} kills of the worker");
    // It has two tasks and one envelope in work.
    assert!(repeats <= KILLS * 3 * BATCH, "{repeats} repeats");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_rabbitmq_loses_no_broadcast_and_nobody_has_to_be_restarted() {
    let mut world = World::start().await;
    let mut worker = world.stack.worker(&STEPS).await;
    let id = world.stack.begin_broadcast().await;
    world.amqp.kill();
    let (status, answer) = world.stack.try_push(&everyone()).await;
    assert_eq!(status, 503, "{answer}");
    world.amqp.restart().await.unwrap();
    world.stack.push_until_taken(&everyone()).await;
    worker.wait_ready().await;
    world.judge(&id, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_rabbitmq_closes_are_opened_again_and_a_broadcast_goes_on() {
    let world = World::start().await;
    let mut worker = world.stack.worker(&STEPS).await;
    let id = world.stack.begin_broadcast().await;
    world.amqp.control(&["close_all_connections", "maintenance"]).await.unwrap();
    world.stack.push_until_taken(&everyone()).await;
    worker.wait_ready().await;
    world.judge(&id, 6).await;
}

/// Waits until a program says that it is not ready because the broker takes nothing.
async fn is_not_ready_for(reason: &str, program: &Program) {
    eventually("it is not ready and says why", PATIENCE, async || match program.is_ready().await {
        Err(seen) if seen.contains(reason) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// What `doctor` says about publishing: level and detail.
async fn diagnosis(stack: &Stack) -> (Value, String) {
    let mut flags = stack.engines();
    flags.extend(["doctor", "--json"].map(str::to_owned));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    // It fails where it finds an error, and says everything all the same.
    let output = pushctl_output(&flags).await;
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let found = findings.iter().find(|finding| finding["subject"] == "publishing").unwrap();
    (found["level"].clone(), found["detail"].as_str().unwrap().to_owned())
}

/// Raises an alarm at RabbitMQ in the middle of a broadcast, and lifts it again.
async fn alarm(raise: &[&str], reason: &str, lift: &[&str]) {
    const BLOCKED: &str = "push_ingest_queue_blocked";
    let world = World::start().await;
    // So slow that the broadcast is still in its middle when the alarm is there.
    let slow = [&STEPS[..], &["--discard-latency", "20ms"]].concat();
    let mut worker = world.stack.worker(&slow).await;
    let id = world.stack.begin_broadcast().await;
    world.amqp.control(raise).await.unwrap();
    // The first push is how ingest learns of it.
    for push in ["the first", "the second"] {
        let begun = Instant::now();
        let (status, answer) = world.stack.try_push(&everyone()).await;
        let took = begun.elapsed();
        assert_eq!((status, &answer["status"]), (503, &json!(503)), "{push}: {answer}");
        assert!(answer["message"].as_str().unwrap().ends_with(reason), "{push}: {answer}");
        assert!(took < Duration::from_secs(1), "{push} took {took:?}");
    }
    is_not_ready_for(reason, world.stack.ingest()).await;
    is_not_ready_for(reason, &worker).await;
    assert_eq!(world.stack.ingest().metric(BLOCKED).await, 1.0);
    let (level, detail) = diagnosis(&world.stack).await;
    assert!(level == "error" && detail.ends_with(reason), "{level} {detail}");

    world.amqp.control(lift).await.unwrap();
    // Without a push.
    eventually("ingest is ready again", PATIENCE, || world.stack.ingest().is_ready()).await;
    worker.wait_ready().await;
    assert_eq!(world.stack.ingest().metric(BLOCKED).await, 0.0);
    let named = json!({"type": 2, "client_ids": ["crowd-1"]});
    let body = json!({"type": 2, "time_to_live": 60, "data": {"k": "v"}, "condition": named});
    world.stack.push(&body).await;
    assert_eq!(diagnosis(&world.stack).await.0, "ok");
    world.judge(&id, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_rabbitmq_is_short_of_memory_pushes_are_refused_and_then_everything_flows() {
    let watermark = "set_vm_memory_high_watermark";
    alarm(&[watermark, "0"], "low on memory", &[watermark, "0.9"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_rabbitmq_is_short_of_disk_pushes_are_refused_and_then_everything_flows() {
    let limit = "set_disk_free_limit";
    alarm(&[limit, "1000000GB"], "low on disk", &[limit, "50MB"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_whose_ledger_was_lost_is_begun_again_and_reaches_everybody() {
    let world = World::start().await;
    let _worker = world.stack.worker(&STEPS).await;
    let id = world.stack.begin_broadcast().await;
    // As a fail-over does with what its replica did not have yet.
    let client = redis::Client::open(world.redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(format!("*{id}*")).query_async(&mut connection).await.unwrap();
    let gone: usize = redis::cmd("DEL").arg(&keys).query_async(&mut connection).await.unwrap();
    assert_eq!(gone, 1, "{keys:?}");
    for device in &world.devices.all {
        device.wait_for(&id).await;
    }
    let fresh = world.stack.push(&everyone()).await;
    world.stack.settled(&fresh).await;
    assert_eq!(world.stack.pushctl(&["dead", "list"]).await, "no dead letters\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_redis_pauses_a_broadcast_and_nobody_has_to_be_restarted() {
    let mut world = World::start().await;
    let mut worker = world.stack.worker(&STEPS).await;
    let id = world.stack.begin_broadcast().await;
    world.redis.kill();
    // Known apps are served from memory meanwhile; what is accepted waits in the queue.
    let (status, answer) = world.stack.try_push(&everyone()).await;
    assert_eq!(status, 200, "{answer}");
    let meanwhile = answer["result"]["message_id"].as_str().unwrap().to_owned();
    world.redis.restart().await.unwrap();
    worker.wait_ready().await;
    world.judge(&id, 6).await;
    world.stack.settled(&meanwhile).await;
}

/// Many slices in work at once, with an index that is waited for shortly.
const MANY_SLICES: [&str; 12] = [
    "--batch",
    "50",
    "--strand-min-slots",
    "1000",
    "--strands",
    "16",
    "--task-prefetch",
    "16",
    "--index-response-timeout",
    "2s",
    "--drain-deadline",
    "8s",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_redis_is_frozen_waits_for_one_time_out_and_not_for_one_a_slice() {
    let world = World::start().await;
    let worker = world.stack.worker(&MANY_SLICES).await;
    let id = world.stack.begin_broadcast().await;
    world.redis.freeze().unwrap();
    let stopped = worker.stop().await;
    assert!(stopped.success() && stopped.log.contains("drained"), "{}", stopped.log);
    world.redis.thaw().unwrap();
    let _other = world.stack.worker(&STEPS).await;
    world.judge(&id, 16 + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_mqtt_broker_puts_devices_off_until_it_thaws() {
    let world = World::start().await;
    let _worker = world.stack.worker(&STEPS).await;
    let id = world.stack.begin_broadcast().await;
    world.mqtt.freeze().unwrap();
    // The length of the fault, not a wait for anything.
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.mqtt.thaw().unwrap();
    world.judge(&id, 6).await;
}

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
