//! A RabbitMQ that is killed, closes connections, or raises an alarm.

use std::time::{Duration, Instant};

use push_queue::amqp::queue_names;
use push_tests::{
    broadcast::{STEPS, everyone},
    eventually,
    servers::RabbitMq,
    service::{Program, pushctl_output},
    stack::{DEADLINE, Servers, Stack},
};
use serde_json::{Value, json};

use crate::recovery::World;

/// A RabbitMQ of the test's own, and a stack on it.
async fn start() -> (RabbitMq, World) {
    let amqp = RabbitMq::start().await.unwrap();
    let world = World::on(Servers { amqp: amqp.url(), ..Servers::shared() }).await;
    (amqp, world)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_rabbitmq_loses_no_broadcast_and_no_program_has_to_be_restarted() {
    let (mut amqp, world) = start().await;
    // RabbitMQ before 3.13 loses a queue whose name has not reached the disk.
    for queue in queue_names(&world.stack.namespace).unwrap() {
        amqp.wait_until_known_on_disk(&queue).await;
    }
    let mut worker = world.stack.worker(&STEPS).await;
    let id = world.stack.begin_broadcast().await;
    amqp.kill();
    let (status, answer) = world.stack.try_push(&everyone()).await;
    assert_eq!(status, 503, "{answer}");
    amqp.restart().await.unwrap();
    world.stack.push_until_accepted(&everyone()).await;
    worker.wait_ready().await;
    world.judge(&id, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_rabbitmq_closes_are_opened_again_and_a_broadcast_goes_on() {
    let (amqp, world) = start().await;
    let mut worker = world.stack.worker(&STEPS).await;
    let id = world.stack.begin_broadcast().await;
    amqp.control(&["close_all_connections", "maintenance"]).await.unwrap();
    world.stack.push_until_accepted(&everyone()).await;
    worker.wait_ready().await;
    world.judge(&id, 6).await;
}

/// Waits until `/readyz` of a program is not 200, with this reason.
async fn is_not_ready_for(reason: &str, program: &Program) {
    eventually("it is not ready and says why", DEADLINE, async || {
        match program.readiness().await {
            Ok(seen) if seen.code == 503 && seen.says("queue", "failed", reason) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// Returns what `doctor` says about publishing: level and detail.
async fn diagnosis(stack: &Stack) -> (Value, String) {
    // It exits with a failure if it finds an error, but still prints its findings.
    let output = pushctl_output(&[&stack.engines()[..], &["doctor", "--json"]].concat()).await;
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let found = findings.iter().find(|finding| finding["subject"] == "publishing").unwrap();
    (found["level"].clone(), found["detail"].as_str().unwrap().to_owned())
}

/// Raises an alarm at RabbitMQ in the middle of a broadcast, and lifts it again.
async fn alarm(raise: &[&str], reason: &str, lift: &[&str]) {
    const BLOCKED: &str = "push_ingest_queue_blocked";
    let (amqp, world) = start().await;
    // So slow that the broadcast is not over when the alarm is raised.
    let slow = [&STEPS[..], &["--tune", "discard-latency=20ms"]].concat();
    let mut worker = world.stack.worker(&slow).await;
    let id = world.stack.begin_broadcast().await;
    amqp.control(raise).await.unwrap();
    // Ingest learns of the alarm by the first push.
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

    amqp.control(lift).await.unwrap();
    // It becomes ready without a push.
    eventually("ingest is ready again", DEADLINE, || world.stack.ingest().is_ready()).await;
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
