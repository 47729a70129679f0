//! Log lines name their subject, and an outage is two lines.

use std::collections::BTreeSet;

use push_queue::{
    IsolatedEnvelope, Lane, MAX_DELIVERIES, Queue as _,
    amqp::{AmqpQueue, AmqpSettings},
};
use push_tests::{
    amqp_url, eventually,
    servers::{RabbitMq, Redis},
    service::Program,
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::{Value, json};

use super::to_clients;

async fn line(program: &Program, message: &str) -> Value {
    eventually(&format!("{message:?} is logged"), DEADLINE, async || {
        let log = program.log();
        let mut lines = log.lines().map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find_map(|line| line.filter(|line| line["message"] == message)).ok_or(log.clone())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_a_worker_says_which_message_of_which_app_it_is_about() {
    const REPEATED: &str = "another copy of this message is the one that is sent";
    let stack = Stack::start(Servers::shared()).await;
    let json = stack.worker(&["--log-format", "json"]).await;
    stack.import_crowd(1, 0).await;
    let twice = async || {
        let path = format!("/v1/message/push/{APP}");
        let key = [("idempotency-key", &*stack.namespace)];
        let body = to_clients(&["crowd-0"]);
        let (status, answer) = stack.call_at(0, "POST", &path, &key, &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["message_id"].as_str().unwrap().to_owned()
    };
    let id = twice().await;
    stack.closed(&id).await;
    assert_eq!(twice().await, id);
    let line = line(&json, REPEATED).await;
    assert_eq!(line["span"]["message_id"], id, "{line}");
    assert_eq!(line["span"]["app"], APP, "{line}");
    drop(json);

    let text = stack.worker(&[]).await;
    assert_eq!(twice().await, id);
    eventually("the copy is logged as text", DEADLINE, async || {
        let log = text.log();
        let line = log.lines().find(|line| line.contains(REPEATED)).map(str::to_owned);
        let line = line.ok_or(log)?;
        assert!(line.contains(&format!("message_id={id}")), "{line}");
        assert!(line.contains(&format!("app={APP}")), "{line}");
        Ok::<_, String>(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_about_a_dead_letter_says_which_message_it_was() {
    let stack = Stack::start(Servers::shared()).await;
    let queue =
        AmqpQueue::connect(&amqp_url(), &stack.namespace, AmqpSettings::default()).await.unwrap();
    let id = |n: u32| format!("0192f0c1-2345-7abc-8def-00000000000{n}");
    let job = |n: u32, rest: &str| {
        let (id, type_and_data) = (id(n), r#""type":2,"data":{}"#);
        format!(
            r#"{{"payload":{{"message_id":"{id}","app_id":"{APP}",{type_and_data},
                "accepted_at":1,"expires_at":2}}{rest}}}"#
        )
    };
    let readable = r#","audience":{"clients":["c"]},"dedup_nonce":0"#;
    let publish = async |envelope: String| {
        queue.publish(Lane::Jobs, envelope.into()).await.unwrap();
    };
    let about = |line: Value| [line["span"]["message_id"].clone(), line["span"]["app"].clone()];

    // It was delivered alone too often, so it is what ends its consumers, and its work is not begun.
    let envelope = format!(r#"{{"v":1,"jobs":[{}]}}"#, job(1, readable)).into();
    let isolated = IsolatedEnvelope { lane: Lane::Jobs, deliveries: 5, envelope };
    queue.publish(Lane::Isolated, isolated.encode()).await.unwrap();
    let mut consumer = queue.consume(Lane::Isolated, 1).await.unwrap();
    loop {
        let delivery = consumer.next().await.unwrap();
        let often = delivery.deliveries >= MAX_DELIVERIES;
        delivery.requeue().await.unwrap();
        if often {
            break;
        }
    }
    drop(consumer);
    let worker = stack.worker(&["--log-format", "json"]).await;
    assert_eq!(about(line(&worker, "dead letter").await), [id(1), APP.to_owned()]);
    assert!(worker.stop().await.success());

    // One of several in an envelope, behind one that can be read.
    publish(format!(r#"{{"v":1,"jobs":[{},{}]}}"#, job(2, readable), job(3, ""))).await;
    let worker = stack.worker(&["--log-format", "json"]).await;
    assert_eq!(about(line(&worker, "dead letter").await), [id(3), APP.to_owned()]);
    queue.close().await;
}

/// Requests that are refused in an outage.
const REFUSED: u32 = 20;

/// The lines of `ingest` itself, without those of code that it shares with other programs.
fn lines_of_ingest(ingest: &Program) -> Vec<Value> {
    let log = ingest.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_own = |line: &Value| line["target"].as_str().unwrap().starts_with("push_ingest");
    lines.filter(is_own).collect()
}

/// Calls until the log says that an outage is over; returns the first warning of it since the first
/// `before` lines, and the only line about its end. No two warnings may be of the same kind: an error begins with
/// the words of its kind, and its causes follow.
async fn the_outage<T>(
    ingest: &Program,
    before: usize,
    end: &str,
    call: impl AsyncFn() -> T,
) -> (Value, Value) {
    eventually(&format!("{end:?} is logged"), DEADLINE, async || {
        call().await;
        let log = ingest.log();
        if log.contains(end) { Ok(()) } else { Err(log) }
    })
    .await;
    let lines = lines_of_ingest(ingest).split_off(before);
    let (warnings, others): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line["level"] != "INFO");
    let kind = |warning: &Value| {
        warning["error"].as_str().and_then(|error| Some(error.split_once(": ")?.0.to_owned()))
    };
    let kinds: BTreeSet<_> = warnings.iter().map(kind).collect();
    assert_eq!(kinds.len(), warnings.len(), "one of each kind: {warnings:#?}");
    let ends: Vec<_> = others.into_iter().filter(|line| line["message"] == end).collect();
    match (warnings.first(), ends.as_slice()) {
        (Some(warning), [end]) => (warning.clone(), end.clone()),
        other => panic!("not one end, and a warning: {other:#?}"),
    }
}

/// A stack whose second `ingest` logs as JSON.
async fn stack_with_json(servers: Servers) -> Stack {
    let mut stack = Stack::start(servers).await;
    let flags = ["--log-format=json", "--tune=app-fresh=100ms", "--tune=publish-timeout=2s"];
    stack.add_ingest_with(&flags).await;
    stack
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_index_is_a_warning_and_an_end_however_many_device_calls_it_refuses() {
    let mut redis = Redis::start().await.unwrap();
    // Data in the index survive its kill.
    redis.sync_always().await.unwrap();
    let stack = stack_with_json(Servers { redis: redis.url(), ..Servers::shared() }).await;
    let ingest = &stack.ingests()[1];
    let path = format!("/v1/device/{APP}/device");
    let register = async || stack.call_at(1, "PUT", &path, &[], &json!({})).await;
    assert_eq!(register().await.0, 200);
    let before = lines_of_ingest(ingest).len();

    redis.kill();
    for _ in 0..REFUSED {
        let (status, answer) = register().await;
        assert_eq!(status, 503, "{answer}");
    }
    redis.restart().await.unwrap();
    let (warning, end) = the_outage(ingest, before, "the index answers again", register).await;
    assert_eq!(warning["app"], APP, "{warning}");
    let error = warning["error"].as_str().unwrap();
    assert!(error.contains(": "), "the cause is missing: {warning}");
    assert!(end["failed"].as_u64().unwrap() >= u64::from(REFUSED), "{end}");
    assert!(end["for_ms"].as_u64().unwrap() > 0, "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_queue_is_a_warning_and_an_end_however_many_pushes_it_refuses() {
    let mut rabbitmq = RabbitMq::start().await.unwrap();
    let stack = stack_with_json(Servers { amqp: rabbitmq.url(), ..Servers::shared() }).await;
    let ingest = &stack.ingests()[1];
    let path = format!("/v1/message/push/{APP}");
    let body = to_clients(&["device"]);
    let push = async || stack.call_at(1, "POST", &path, &[], &body).await;
    assert_eq!(push().await.0, 200);
    let before = lines_of_ingest(ingest).len();
    let (sent, failed) = ("push_ingest_batches_total", "push_ingest_failed_batches_total");
    assert_eq!((ingest.metric(sent).await, ingest.metric(failed).await), (1.0, 0.0));

    rabbitmq.kill();
    for _ in 0..REFUSED {
        let (status, answer) = push().await;
        assert_eq!(status, 503, "{answer}");
    }
    let refused = f64::from(REFUSED);
    assert_eq!((ingest.metric(sent).await, ingest.metric(failed).await), (1.0 + refused, refused));
    rabbitmq.restart().await.unwrap();
    let (warning, end) = the_outage(ingest, before, "the queue confirms batches again", push).await;
    assert_eq!(warning["app"], APP, "{warning}");
    assert!(warning["message_id"].is_string(), "{warning}");
    // Pushes that were refused while the queue was away, and until the connection was open again.
    assert!(end["pushes"].as_u64().unwrap() >= u64::from(REFUSED), "{end}");
    assert!(end["for_ms"].as_u64().unwrap() > 0, "{end}");
}
