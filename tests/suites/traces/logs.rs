//! Every line of the log says what it is about.

use push_queue::{
    Lane, MAX_DELIVERIES, Queue as _,
    amqp::{AmqpQueue, AmqpSettings},
};
use push_tests::{
    amqp_url, eventually,
    service::Program,
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::Value;

use super::to_clients;

/// The line with this message, as JSON.
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
    let readable = r#","audience":{"clients":["c"]},"copy":0"#;
    let publish = async |envelope: String| {
        queue.publish(Lane::Jobs, envelope.into()).await.unwrap();
    };
    let about = |line: Value| [line["span"]["message_id"].clone(), line["span"]["app"].clone()];

    // Delivered too often: it may be what ends its consumers, so it is not read.
    publish(format!(r#"{{"v":1,"jobs":[{}]}}"#, job(1, readable))).await;
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
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

    // One of several, behind one that can be read.
    publish(format!(r#"{{"v":1,"jobs":[{},{}]}}"#, job(2, readable), job(3, ""))).await;
    let worker = stack.worker(&["--log-format", "json"]).await;
    assert_eq!(about(line(&worker, "dead letter").await), [id(3), APP.to_owned()]);
    queue.close().await;
}
