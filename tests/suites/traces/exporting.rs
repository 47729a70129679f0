//! Sending spans: what a collector that fails costs, and what a program does when it stops.

use futures::future;
use http::StatusCode;
use push_tests::{
    eventually, free_port,
    stack::{DEADLINE, Servers, Stack},
};

use super::{TRACE, collector::Collector, named, push, to_clients, traced_stack, traceparent};

const FAILED: &str = r#"push_trace_spans_total{outcome="failed"}"#;
const EXPORTED: &str = r#"push_trace_spans_total{outcome="exported"}"#;
const DROPPED: &str = r#"push_trace_spans_total{outcome="dropped"}"#;

/// Pushes at once.
const PUSHES: usize = 100;
/// More pushes than there is room for waiting spans: each push is a span, and its publish is another.
const MOST_ROUNDS: usize = 500;

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_up_no_push_and_is_logged_once_without_its_password() {
    let port = free_port().unwrap();
    let url = format!("http://me:hunter2@{}/hunter2", port.address());
    let mut stack = Stack::start(Servers::shared()).await;
    let flags = ["--otlp-url", &url, "--otlp-headers", "x-key=hunter2", "--trace-ratio", "1"];
    stack.add_ingest_with(&flags).await;
    stack.import_crowd(1, 0).await;
    let ingest = stack.take_ingests().remove(1);
    let mut pushes = 0;
    // Spans of several requests to the collector are lost.
    for _ in 0..3 {
        let failed = ingest.metric(FAILED).await;
        push(&stack, &[], &to_clients(&["crowd-0"])).await;
        pushes += 1;
        eventually("the spans are lost", DEADLINE, async || {
            let now = ingest.metric(FAILED).await;
            if now > failed { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
    }
    assert!(ingest.metric(FAILED).await >= f64::from(2 * pushes), "a request and its publish");
    let stopped = ingest.stop().await;
    assert!(stopped.success(), "{}", stopped.log);
    assert_eq!(
        stopped.log.matches("the collector does not take spans").count(),
        1,
        "{}",
        stopped.log
    );
    assert!(!stopped.log.contains("hunter2"), "{}", stopped.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_back_gets_the_spans_that_come_then() {
    let collector = Collector::start().await;
    let stack = traced_stack(&collector, &["--trace-ratio", "1", "--otlp-headers", "x-key=abc"]);
    let mut stack = stack.await;
    stack.import_crowd(1, 0).await;
    let ingest = stack.take_ingests().remove(1);
    collector.answer_with(StatusCode::SERVICE_UNAVAILABLE);
    let lost = push(&stack, &[], &to_clients(&["crowd-0"])).await;
    eventually("the spans are lost", DEADLINE, async || {
        let now = ingest.metric(FAILED).await;
        if now >= 2.0 { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
    collector.answer_with(StatusCode::OK);
    let id = push(&stack, &[], &to_clients(&["crowd-0"])).await;
    let spans = collector.spans_when(|spans| {
        named(spans, "push").iter().any(|span| span.attribute("message_id") == id)
    });
    let spans = spans.await;
    assert!(spans.iter().all(|span| span.attribute("message_id") != lost), "{spans:#?}");
    assert_eq!(collector.header("x-key").as_deref(), Some("abc"));
    assert!(ingest.metric(EXPORTED).await >= 1.0);
    let log = ingest.log();
    assert!(log.contains("it answered 503") && log.contains("takes spans again"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_holds_up_no_push_and_no_stop_and_lost_spans_are_counted() {
    let collector = Collector::start().await;
    collector.hang();
    let mut stack = traced_stack(&collector, &["--trace-ratio", "1"]).await;
    stack.import_crowd(1, 0).await;
    let ingest = stack.take_ingests().remove(1);
    let body = to_clients(&["crowd-0"]);
    let mut rounds = 0;
    while ingest.metric(DROPPED).await == 0.0 {
        rounds += 1;
        assert!(rounds < MOST_ROUNDS, "all spans find room");
        future::join_all((0..PUSHES).map(|_| push(&stack, &[], &body))).await;
    }
    let stopped = ingest.stop().await;
    assert!(stopped.success(), "{}", stopped.log);
    assert!(stopped.log.contains("has not taken the last spans in time"), "{}", stopped.log);
    assert!(collector.spans().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_stops_sends_its_last_spans() {
    let collector = Collector::start().await;
    let mut stack = traced_stack(&collector, &[]).await;
    stack.import_crowd(1, 0).await;
    let ingest = stack.take_ingests().remove(1);
    let parent = traceparent(TRACE, "01");
    push(&stack, &[("traceparent", &parent)], &to_clients(&["crowd-0"])).await;
    let stopped = ingest.stop().await;
    assert!(stopped.success(), "{}", stopped.log);
    let spans = collector.spans();
    assert_eq!(named(&spans, "push").len(), 1, "{spans:#?}");
}
