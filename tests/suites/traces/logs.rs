//! Log lines name their subject, and an outage is two lines.

use push_queue::{
    IsolatedEnvelope, Lane, MAX_DELIVERIES, Queue as _, WorkLane,
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
    let isolated = IsolatedEnvelope { lane: WorkLane::Jobs, deliveries: 5, envelope };
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

/// The lines of a program that an operator sees, from this one on.
fn seen(program: &Program, from: usize) -> Vec<Value> {
    let log = program.log();
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).skip(from).collect()
}

/// Waits until a program says that a server is up again, and checks that it says the outage once, with the
/// address of the server, and that no other line is about it.
async fn says_the_outage_once(program: &Program, from: usize, server: &str) {
    let is_up = format!("{server} is up again after ");
    let lines = eventually(&format!("{is_up} is logged"), DEADLINE, async || {
        let lines = seen(program, from);
        match lines.iter().any(|line| line["message"].as_str().unwrap().starts_with(&is_up)) {
            true => Ok(lines),
            false => Err(program.log()),
        }
    })
    .await;
    let [down, up] = &lines[..] else { panic!("not two lines: {lines:#?}") };
    let text = |line: &Value| line["message"].as_str().unwrap().to_owned();
    assert_eq!((&down["level"], &up["level"]), (&json!("WARN"), &json!("INFO")), "{lines:#?}");
    let why = text(down).strip_prefix(&format!("{server} is down: ")).map(str::to_owned);
    assert!(why.is_some_and(|why| !why.is_empty()), "{down}");
    assert!(down["runbook"].is_string(), "{down}");
    let time = text(up).strip_prefix(&is_up).map(str::to_owned).unwrap();
    assert!(time.ends_with(" s") && !time.starts_with("0.0"), "{up}");
}

/// A stack whose second `ingest` logs as JSON, and its worker, which does so too.
async fn stack_with_json(servers: Servers) -> (Stack, Program) {
    let mut stack = Stack::start(servers).await;
    let flags = ["--log-format=json", "--tune=app-fresh=100ms", "--tune=publish-timeout=2s"];
    stack.add_ingest_with(&flags).await;
    let worker = stack.worker(&["--log-format=json"]).await;
    (stack, worker)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stops_and_comes_back_is_said_once_each_with_its_address_and_how_long() {
    let mut redis = Redis::start().await.unwrap();
    // Data in the index survive its kill.
    redis.sync_always().await.unwrap();
    let servers = Servers { redis: redis.url(), ..Servers::shared() };
    let (stack, worker) = stack_with_json(servers).await;
    let ingest = &stack.ingests()[1];
    let path = format!("/v1/device/{APP}/device");
    let register = async || stack.call_at(1, "PUT", &path, &[], &json!({})).await;
    assert_eq!(register().await.0, 200);
    let before = [ingest, &worker].map(|program| seen(program, 0).len());

    redis.kill();
    for _ in 0..REFUSED {
        let (status, answer) = register().await;
        assert_eq!(status, 503, "{answer}");
    }
    for program in [ingest, &worker] {
        eventually("the outage is said", DEADLINE, async || {
            let log = program.log();
            if log.contains(" is down: ") { Ok(()) } else { Err(log) }
        })
        .await;
    }
    redis.restart().await.unwrap();
    let server = format!("Redis at {}", redis.url().trim_start_matches("redis://"));
    says_the_outage_once(ingest, before[0], &server).await;
    says_the_outage_once(&worker, before[1], &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rabbitmq_that_stops_and_comes_back_is_said_once_each_with_its_address_and_how_long() {
    let mut rabbitmq = RabbitMq::start().await.unwrap();
    let servers = Servers { amqp: rabbitmq.url(), ..Servers::shared() };
    let (stack, mut worker) = stack_with_json(servers).await;
    let ingest = &stack.ingests()[1];
    let path = format!("/v1/message/push/{APP}");
    let body = to_clients(&["device"]);
    let push = async || stack.call_at(1, "POST", &path, &[], &body).await;
    assert_eq!(push().await.0, 200);
    let before = [ingest, &worker].map(|program| seen(program, 0).len());
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
    let url = rabbitmq.url();
    let address = url.rsplit('@').next().unwrap().trim_start_matches("amqp://");
    let server = format!("RabbitMQ at {}", address.split('/').next().unwrap());
    says_the_outage_once(ingest, before[0], &server).await;
    worker.wait_ready().await;
    says_the_outage_once(&worker, before[1], &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_two_lines_one_with_addresses_and_servers_and_one_when_it_is_ready() {
    let (stack, worker) = stack_with_json(Servers::shared()).await;
    for (program, started) in [(&stack.ingests()[1], "ingest started"), (&worker, "worker started")]
    {
        let lines = eventually("it is ready", DEADLINE, async || match seen(program, 0) {
            lines if lines.len() >= 2 => Ok(lines),
            _ => Err(program.log()),
        })
        .await;
        let [first, second] = &lines[..] else { panic!("not two lines: {lines:#?}") };
        assert_eq!(first["message"], started, "{first}");
        assert!(first["ops"].is_string() && first["queue"].is_string(), "{first}");
        let ready = second["message"].as_str().unwrap();
        assert!(ready.starts_with("ready in ") && ready.ends_with(" s"), "{second}");
    }
}
