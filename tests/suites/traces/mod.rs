//! Logs and traces: one push is one trace, from the request to its batches, as a collector receives
//! it; and every line of the log says what it is about.

mod collector;
mod exporting;
mod logs;
mod sampling;

use std::collections::{BTreeMap, BTreeSet};

use push_tests::{
    broadcast::everyone,
    stack::{APP, Servers, Stack},
};
use serde_json::{Value, json};

use self::collector::{Collector, Received};

/// The trace and the span of a caller.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// Devices of the broadcast, and how many of them a batch has at most.
const DEVICES: usize = 4000;
/// Flags of a worker: several partitions, of which it takes one at a time, so that both work.
const WORKER: [&str; 4] = [
    "--tune=partition-min-slots=500",
    "--task-prefetch=1",
    "--batch=200",
    "--tune=discard-latency=20ms",
];

fn traceparent(trace: &str, flags: &str) -> String {
    format!("00-{trace}-{CALLER}-{flags}")
}

/// A stack whose second `ingest`, at index 1, sends traces to the collector.
async fn traced_stack(collector: &Collector, flags: &[&str]) -> Stack {
    let mut stack = Stack::start(Servers::shared()).await;
    let url = collector.url();
    stack.add_ingest_with(&[&["--otlp-url", &*url][..], flags].concat()).await;
    stack
}

/// Pushes to the `ingest` that sends traces; returns the message id.
async fn push(stack: &Stack, headers: &[(&str, &str)], body: &Value) -> String {
    let path = format!("/v1/message/push/{APP}");
    let (status, answer) = stack.call_at(1, "POST", &path, headers, body).await;
    assert_eq!(status, 200, "{answer}");
    answer["result"]["message_id"].as_str().unwrap().to_owned()
}

fn to_clients(clients: &[&str]) -> Value {
    json!({"type": 2, "time_to_live": 600, "data": {"k": "v"},
        "condition": {"type": 2, "client_ids": clients}})
}

/// Returns true if each span follows one of the others, or `root`: the caller's, or none. So none is missing.
fn is_connected(spans: &[Received], root: &str) -> bool {
    let ids: BTreeSet<&str> = spans.iter().map(|span| &*span.id).collect();
    spans.iter().all(|span| span.parent == root || ids.contains(&*span.parent))
}

fn named<'a>(spans: &'a [Received], name: &str) -> Vec<&'a Received> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_push_is_one_connected_trace_from_the_request_to_its_batches_in_two_workers() {
    let collector = Collector::start().await;
    let stack = traced_stack(&collector, &[]).await;
    let url = collector.url();
    let flags = [&WORKER[..], &["--otlp-url", &url]].concat();
    let _workers = [stack.worker(&flags).await, stack.worker(&flags).await];
    stack.import_crowd(DEVICES, 0).await;

    let parent = traceparent(TRACE, "01");
    let id = push(&stack, &[("traceparent", &parent)], &everyone()).await;
    let ledger = stack.closed(&id).await;
    assert_eq!(ledger["sent"], DEVICES, "{ledger}");
    let sent = |spans: &[Received]| -> u64 {
        named(spans, "batch").iter().map(|batch| batch.number("sent")).sum()
    };
    // The spans of the job, of the last runs and of the publish end after the ledger is closed.
    let spans = collector.trace(TRACE, |spans| {
        sent(spans) == DEVICES as u64
            && is_connected(spans, CALLER)
            && !named(spans, "publish").is_empty()
    });
    let spans = spans.await;

    let requests = named(&spans, "push");
    let [request] = requests.as_slice() else { panic!("{requests:#?}") };
    assert_eq!((&*request.parent, &*request.service), (CALLER, "ingest"));
    assert_eq!((request.number("status"), request.is_server), (200, true));
    let children = |of: &Received, name: &str| -> Vec<Received> {
        let children = named(&spans, name).into_iter().filter(|span| span.parent == of.id);
        children.cloned().collect()
    };
    assert_eq!(children(request, "publish").len(), 1, "{spans:#?}");
    let jobs = children(request, "job");
    let [job] = jobs.as_slice() else { panic!("{spans:#?}") };
    let tasks = children(job, "task");
    let tasks: Vec<_> = tasks.iter().filter(|task| task.attribute("work") == "partition").collect();
    let partitions: BTreeSet<&str> = tasks.iter().map(|task| task.attribute("partition")).collect();
    assert_eq!(partitions.len(), DEVICES / 500, "{tasks:#?}");

    let mut by_worker: BTreeMap<&str, u64> = BTreeMap::new();
    for batch in named(&spans, "batch") {
        let task = tasks.iter().find(|task| task.id == batch.parent).expect("a task of the batch");
        assert_eq!(batch.attribute("partition"), task.attribute("partition"));
        assert_eq!(batch.instance, task.instance);
        *by_worker.entry(&batch.instance).or_default() += batch.number("sent");
    }
    assert_eq!(by_worker.len(), 2, "both workers sent: {by_worker:?}");
    for span in spans.iter().filter(|span| span.name != "publish") {
        assert_eq!((span.attribute("message_id"), span.attribute("app")), (&*id, APP), "{span:?}");
    }
    assert!(spans.iter().all(|span| span.lasts > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_push_of_a_batch_request_is_a_job_of_its_trace() {
    let collector = Collector::start().await;
    let stack = traced_stack(&collector, &[]).await;
    let url = collector.url();
    let _worker = stack.worker(&["--otlp-url", &url]).await;
    stack.import_crowd(2, 0).await;
    let lines: Vec<String> =
        (0..3).map(|n| to_clients(&[&format!("crowd-{}", n % 2)]).to_string()).collect();
    let url = format!("{}/v1/message/push/{APP}/batch", stack.ingest_url(1));
    let parent = traceparent(TRACE, "01");
    let headers = [
        ("authorization", stack.secret()),
        ("content-type", "application/x-ndjson"),
        ("traceparent", &parent),
    ];
    let (status, text) =
        push_tests::service::request("POST", &url, &headers, &lines.join("\n")).await.unwrap();
    assert_eq!(status, 200, "{text}");
    let ids: BTreeSet<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|answer| answer["result"]["message_id"].as_str().unwrap().to_owned())
        .collect();
    let spans = collector
        .trace(TRACE, |spans| is_connected(spans, CALLER) && named(spans, "job").len() == 3);
    let spans = spans.await;
    let request = named(&spans, "push_batch")[0];
    assert_eq!(request.number("pushes"), 3);
    let jobs = named(&spans, "job");
    assert!(jobs.iter().all(|job| job.parent == request.id), "{spans:#?}");
    let seen: BTreeSet<String> =
        jobs.iter().map(|job| job.attribute("message_id").to_owned()).collect();
    assert_eq!(seen, ids);
    let batches = named(&spans, "batch");
    assert_eq!(batches.iter().map(|batch| batch.number("sent")).sum::<u64>(), 3, "{spans:#?}");
}
