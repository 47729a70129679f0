//! The limit of the ledger as producers and operators see it, with the programs as processes.

use std::time::{Duration, Instant};

use push_tests::{
    eventually,
    service::request,
    stack::{APP, Servers, Stack},
};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);

/// Flags of a worker: the limit leaves room for a part of this test's entries only.
const LIMIT: [&str; 4] = ["--ledger-limit", "40KiB", "--tune", "ledger-check=200ms"];

/// Pushes to one device, some 30 bytes each.
const PUSHES: usize = 4000;

/// Pushes in one request.
const LINES: usize = 1000;

fn push() -> Value {
    let condition = json!({"type": 2, "client_ids": ["one"]});
    json!({"type": 2, "time_to_live": 600, "data": {"k": "v"}, "condition": condition})
}

async fn message(service: &Stack, method: &str, id: &str) -> (u16, Value) {
    service.call_at(0, method, &format!("/v1/message/{APP}/{id}"), &[], &Value::Null).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_that_was_sent_and_evicted_does_not_come_back_as_unrecorded() {
    let service = Stack::start(Servers::shared()).await;
    service.import("{\"client_id\":\"one\",\"transport\":\"discard\"}\n").await;
    let full = ["--ledger-limit", "1KiB", "--tune", "ledger-check=100ms"];
    let worker = service
        .worker(&[full, ["--tune", "closing-check=3s", "--tune", "closing-rest=500ms"]].concat())
        .await;
    let broadcast =
        json!({"type": 2, "time_to_live": 1, "data": {"k": "v"}, "condition": {"type": 0}});
    // Sooner or later one of these is evicted before its first closing check.
    eventually("a check finds that its broadcast was evicted", DEADLINE, async || {
        service.push(&broadcast).await;
        match worker.metric(r#"push_worker_closing_checks_total{found="forgotten"}"#).await {
            0.0 => Err("none yet".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    for unseen in [
        r#"push_worker_closing_checks_total{found="missing"}"#,
        r#"push_worker_devices_total{outcome="failed",reason="unrecorded"}"#,
    ] {
        assert_eq!(worker.metric(unseen).await, 0.0, "{unseen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_pushes_are_evicted_when_the_ledger_is_full_and_the_newest_are_not() {
    let service = Stack::start(Servers::shared()).await;
    service.import("{\"client_id\":\"one\",\"transport\":\"discard\"}\n").await;
    let worker = service.worker(&LIMIT).await;
    let begun = Instant::now();
    let first = service.push(&push()).await;
    assert_eq!(service.closed(&first).await["sent"], 1);
    let url = format!("{}/v1/message/push/{APP}/batch", service.ingest_url(0));
    let headers = [("authorization", service.secret()), ("content-type", "application/x-ndjson")];
    let lines = format!("{}\n", push()).repeat(LINES);
    for _ in 0..PUSHES / LINES {
        let (status, answer) = request("POST", &url, &headers, &lines).await.unwrap();
        assert_eq!((status, answer.matches("message_id").count()), (200, LINES), "{answer}");
    }
    eventually("the first push is evicted", DEADLINE, async || {
        match message(&service, "GET", &first).await {
            (404, _) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    // It is not taken for a message that waits in the queue, which could be recalled.
    assert_eq!(message(&service, "DELETE", &first).await.0, 404);
    let last = service.push(&push()).await;
    assert_eq!(service.closed(&last).await["sent"], 1);
    // The metric is set after the round that evicted it.
    eventually("the worker counts evicted entries", DEADLINE, async || {
        let evicted = worker.metric("push_worker_ledger_forgotten").await;
        assert!(evicted < PUSHES as f64, "{evicted}");
        if evicted > 0.0 { Ok(()) } else { Err("nothing evicted yet".to_owned()) }
    })
    .await;
    let limit = worker.metric("push_worker_ledger_limit_bytes").await;
    assert_eq!(limit, 40.0 * 1024.0);
    eventually("the ledger is within its limit", DEADLINE, async || {
        let bytes = worker.metric("push_worker_ledger_bytes").await;
        if bytes > 0.0 && bytes <= limit { Ok(()) } else { Err(bytes.to_string()) }
    })
    .await;
    eventually("the ledger reaches back to the oldest entry that is left", DEADLINE, async || {
        let reach = worker.metric("push_worker_ledger_reach_seconds").await;
        let most = begun.elapsed().as_secs_f64() + 1.0;
        assert!(reach <= most, "{reach} s, but the first push is no older than {most} s");
        if reach >= 1.0 { Ok(()) } else { Err(reach.to_string()) }
    })
    .await;
    let said = service.pushctl(&["doctor"]).await;
    assert!(said.contains("entries were evicted for its limit; raise --ledger-limit"), "{said}");
}
