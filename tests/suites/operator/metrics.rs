//! `/metrics` under load: the counts move as the page says.

use std::{fs, time::Duration};

use push_tests::{
    eventually, free_port,
    servers::{RabbitMq, Redis},
    service::Program,
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::{Value, json};

use super::everyone;

/// Flags of a worker that takes about two seconds for 40,000 devices, and reads often how many are
/// left.
const SLOW: [&str; 6] = [
    "--batch=100",
    "--tune=partition-min-slots=1000",
    "--task-prefetch=2",
    "--tune=discard-latency=30ms",
    "--tune=run-time=100ms",
    "--tune=metrics-interval=50ms",
];
/// Flags of a program that often reads how many devices are left, and what the stores hold.
pub(super) const OFTEN: [&str; 1] = ["--tune=metrics-interval=50ms"];

fn named(clients: &[&str]) -> Value {
    json!({"type": 2, "time_to_live": 600, "condition": {"type": 2, "client_ids": clients}})
}

/// Waits until a metric has an expected value, and returns it.
pub(super) async fn until(program: &Program, name: &str, is_right: impl Fn(f64) -> bool) -> f64 {
    eventually(&format!("{name} is as it should be"), DEADLINE, async || {
        let seen = program.metric(name).await;
        if is_right(seen) { Ok(seen) } else { Err(seen.to_string()) }
    })
    .await
}

async fn assert_are(program: &Program, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        assert_eq!(program.metric(name).await, *value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_devices_are_counted_as_the_page_says() {
    let stack = Stack::start(Servers::shared()).await;
    stack.import_crowd(2_000, 0).await;
    // On a slow machine too, each message takes one run.
    let worker = stack.worker(&[OFTEN[0], "--tune=run-time=60s"]).await;
    for _ in 0..3 {
        let id = stack.push(&named(&["crowd-0", "crowd-1", "unknown"])).await;
        stack.closed(&id).await;
    }
    let id = stack.push(&everyone(600)).await;
    stack.closed(&id).await;
    let (status, _) = stack.try_push(&json!({"type": 9})).await;
    assert_eq!(status, 400);

    let ingest = stack.ingest();
    let expected = [
        (r#"push_ingest_answers_total{call="push",status="200"}"#, 4.0),
        (r#"push_ingest_answers_total{call="push",status="21005"}"#, 1.0),
        (r#"push_ingest_request_seconds_count{call="push"}"#, 5.0),
        (r#"push_ingest_app_pushes_total{app="app",result="accepted"}"#, 4.0),
        (r#"push_ingest_app_pushes_total{app="app",result="rejected"}"#, 1.0),
        ("push_ingest_push_wait_seconds_count", 4.0),
        ("push_ingest_publish_seconds_count", 4.0),
        ("push_ingest_batch_pushes_sum", 4.0),
        ("push_ingest_batch_bytes_count", 4.0),
        ("push_ingest_batches_total", 4.0),
        ("push_ingest_failed_batches_total", 0.0),
        ("push_ingest_waiting_pushes", 0.0),
        ("push_ingest_waiting_pushes_limit", 8192.0),
        ("push_ingest_body_memory_bytes", 0.0),
        ("push_ingest_cached_apps", 1.0),
        ("push_ingest_cached_apps_limit", 100_000.0),
    ];
    assert_are(ingest, &expected).await;
    assert!(ingest.metric(r#"push_ingest_app_reads_total{result="found"}"#).await >= 1.0);
    let waited = ingest.metric("push_ingest_push_wait_seconds_sum").await;
    assert!(waited > 0.0 && waited < 4.0 * DEADLINE.as_secs_f64(), "{waited}");
    let (busy, threads) = ("tokio_busy_seconds_total", ingest.metric("tokio_workers").await);
    let busy = ingest.metric(busy).await;
    assert!(busy > 0.0 && busy < threads * DEADLINE.as_secs_f64(), "{busy}");

    let expected = [
        (r#"push_worker_devices_total{outcome="sent",reason=""}"#, 2_006.0),
        (r#"push_worker_devices_total{outcome="failed",reason="unknown_client"}"#, 3.0),
        (r#"push_worker_app_devices_total{app="app",outcome="sent"}"#, 2_006.0),
        (r#"push_worker_app_devices_total{app="app",outcome="failed"}"#, 3.0),
        (r#"push_worker_transport_devices_total{transport="discard",outcome="sent"}"#, 2_006.0),
        (r#"push_worker_accepted_to_sent_seconds_count{audience="named"}"#, 6.0),
        (r#"push_worker_accepted_to_sent_seconds_count{audience="broadcast"}"#, 2_000.0),
        (r#"push_worker_targeting_seconds_count{audience="named"}"#, 3.0),
        ("push_worker_batch_devices_sum", 2_006.0),
        (r#"push_worker_runs_total{end="finished"}"#, 4.0),
        ("push_worker_run_seconds_count", 1.0),
        (r#"push_worker_transport_ready{transport="mqtt"}"#, 1.0),
        (r#"push_worker_transport_connections_wanted{transport="mqtt"}"#, 5.0),
        (r#"push_worker_dead_letters_total{lane="jobs"}"#, 0.0),
    ];
    // A message is closed for a moment before its run has ended and is counted.
    until(&worker, r#"push_worker_runs_total{end="finished"}"#, |runs| runs >= 4.0).await;
    assert_are(&worker, &expected).await;
    assert!(
        worker.metric(r#"push_worker_targeting_seconds_count{audience="broadcast"}"#).await >= 2.0
    );
    let latency = worker.metric(r#"push_worker_accepted_to_sent_seconds_sum{audience="named"}"#);
    let latency = latency.await;
    assert!(latency > 0.0 && latency < 6.0 * DEADLINE.as_secs_f64(), "{latency}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_the_queue_and_for_how_long_is_seen_without_a_worker() {
    let mut stack = Stack::start(Servers::shared()).await;
    stack.add_ingest_with(&OFTEN).await;
    stack.import_crowd(10, 0).await;
    let ingest = &stack.ingests()[1];
    let (jobs, consumers, oldest) = (
        r#"push_queue_messages{queue="jobs"}"#,
        r#"push_queue_consumers{queue="jobs"}"#,
        r#"push_queue_oldest_seconds{queue="jobs"}"#,
    );
    until(ingest, r#"push_store_up{store="queue"}"#, |up| up == 1.0).await;
    assert_are(ingest, &[(jobs, 0.0), (consumers, 0.0), (oldest, 0.0)]).await;
    for _ in 0..3 {
        stack.push(&named(&["crowd-0"])).await;
    }
    until(ingest, jobs, |messages| messages == 3.0).await;
    let old = until(ingest, oldest, |age| age > 0.5).await;
    until(ingest, oldest, |age| age > old + 0.5).await;

    let worker = stack.worker(&OFTEN).await;
    for program in [ingest, &worker] {
        until(program, consumers, |consumers| consumers == 1.0).await;
        until(program, jobs, |messages| messages == 0.0).await;
        until(program, oldest, |age| age == 0.0).await;
    }
    drop(worker);
    until(ingest, consumers, |consumers| consumers == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_broadcasts_is_seen_by_every_worker_and_falls_to_nothing() {
    let stack = Stack::start(Servers::shared()).await;
    stack.import_crowd(40_000, 0).await;
    let workers = [stack.worker(&SLOW).await, stack.worker(&SLOW).await];
    let (open, left) = ("push_broadcasts_open", "push_broadcast_devices_left");
    let (seconds, work) = ("push_broadcast_seconds_left", "push_broadcast_work_seconds_left");
    let none = [(open, 0.0), (left, 0.0), (seconds, 0.0), (work, 0.0)];
    for worker in &workers {
        until(worker, "push_broadcast_devices_per_second", |rate| rate > 0.0).await;
        assert_are(worker, &none).await;
    }
    let id = stack.push(&everyone(600)).await;
    for worker in &workers {
        until(worker, open, |open| open == 1.0).await;
        let devices = until(worker, left, |devices| devices > 0.0).await;
        // Not one more than there are slots, with the devices that were read in between.
        assert!(devices <= 41_000.0, "{devices}");
        let less = until(worker, left, |now| now < devices).await;
        assert!(less >= 0.0, "{less}");
    }
    let first = &workers[0];
    let both = first.metric(r#"push_queue_consumers{queue="tasks"}"#).await;
    assert_eq!(both, 2.0);
    stack.closed(&id).await;
    for worker in &workers {
        until(worker, open, |open| open == 0.0).await;
        assert_are(worker, &none).await;
        let rate = worker.metric("push_broadcast_devices_per_second").await;
        assert!(rate > 0.0 && rate != 10_000.0, "it was measured: {rate}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_that_is_recalled_or_expired_has_nothing_left() {
    let stack = Stack::start(Servers::shared()).await;
    stack.import_crowd(40_000, 0).await;
    // Slow enough that no broadcast ends by itself.
    let mut slow = SLOW;
    slow[3] = "--tune=discard-latency=1s";
    let worker = stack.worker(&slow).await;
    let open = "push_broadcasts_open";
    let id = stack.push(&everyone(600)).await;
    until(&worker, open, |open| open == 1.0).await;
    let path = format!("/v1/message/{APP}/{id}");
    let (status, answer) = stack.call_at(0, "DELETE", &path, &[], &Value::Null).await;
    assert_eq!(status, 200, "{answer}");
    until(&worker, open, |open| open == 0.0).await;
    assert_are(&worker, &[("push_broadcast_devices_left", 0.0)]).await;

    stack.push(&everyone(5)).await;
    until(&worker, open, |open| open == 1.0).await;
    until(&worker, open, |open| open == 0.0).await;
    assert_are(&worker, &[("push_broadcast_devices_left", 0.0)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_down_and_has_no_old_values() {
    let mut redis = Redis::start().await.unwrap();
    let stack = Stack::start(Servers { redis: redis.url(), ..Servers::shared() }).await;
    let worker = stack.worker(&OFTEN).await;
    let up = r#"push_store_up{store="index"}"#;
    until(&worker, up, |up| up == 1.0).await;
    let memory = r#"push_store_memory_bytes{store="index",node=""}"#;
    assert!(worker.metric(memory).await > 100_000.0);
    let limit = r#"push_store_memory_limit_bytes{store="index",node=""}"#;
    assert_are(&worker, &[(limit, 0.0)]).await;
    redis.limit_memory(1 << 30).await.unwrap();
    until(&worker, limit, |bytes| bytes == f64::from(1 << 30)).await;
    redis.kill();
    until(&worker, up, |up| up == 0.0).await;
    eventually("nothing is told of the index", DEADLINE, async || {
        let text = worker.metrics().await;
        let old = ["push_store_memory_", "push_broadcast_devices_left"];
        match old.into_iter().find(|name| text.contains(name)) {
            None => Ok(()),
            Some(name) => Err(name.to_owned()),
        }
    })
    .await;
    assert_are(&worker, &[(r#"push_store_up{store="queue"}"#, 1.0)]).await;
    redis.restart().await.unwrap();
    until(&worker, up, |up| up == 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connections_to_rabbitmq_are_counted_also_while_it_is_away() {
    let mut rabbitmq = RabbitMq::start().await.unwrap();
    let mut stack = Stack::start(Servers { amqp: rabbitmq.url(), ..Servers::shared() }).await;
    stack.add_ingest_with(&OFTEN).await;
    let worker = stack.worker(&OFTEN).await;
    // One to publish, and two consumers of a worker.
    let programs = [(&stack.ingests()[1], 1.0), (&worker, 3.0)];
    let (open, wanted) = ("push_queue_connections", "push_queue_connections_wanted");
    for (program, connections) in programs {
        until(program, open, |seen| seen == connections).await;
        assert_are(program, &[(wanted, connections)]).await;
    }
    rabbitmq.kill();
    for (program, connections) in programs {
        until(program, open, |seen| seen == 0.0).await;
        assert_are(program, &[(wanted, connections)]).await;
    }
    rabbitmq.restart().await.unwrap();
    for (program, connections) in programs {
        until(program, open, |seen| seen == connections).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_whose_entry_stays_open_after_its_end_is_overdue_until_it_closes() {
    let stack = Stack::start(Servers::shared()).await;
    stack.import_crowd(4_000, 0).await;
    // Its transport answers long after the broadcast has ended, and its own check comes later still.
    let hung = ["--tune", "partition-min-slots=1000", "--tune", "discard-latency=10m"];
    let hung = stack.worker(&[&hung[..], &OFTEN].concat()).await;
    let strict = ["--tune", "closing-check=100ms", "--tune", "closing-rest=100ms"];
    // Both take some of it; what this one has ends at once.
    let worker = stack.worker(&[&strict[..], &OFTEN].concat()).await;
    let overdue = "push_broadcasts_overdue";
    assert_are(&worker, &[(overdue, 0.0)]).await;
    stack.push(&everyone(10)).await;
    until(&hung, "push_broadcasts_open", |open| open == 1.0).await;
    until(&worker, overdue, |broadcasts| broadcasts == 1.0).await;
    // The other worker takes over its part.
    drop(hung);
    until(&worker, overdue, |broadcasts| broadcasts == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caches_of_a_worker_hold_what_it_read_of_the_index_within_their_limits() {
    let stack = Stack::start(Servers::shared()).await;
    stack.import_crowd(10, 0).await;
    let worker = stack.worker(&OFTEN).await;
    let targeting = json!({"type": 1, "targeting": {"country": ["SG"]}});
    let targeted = json!({"type": 2, "time_to_live": 600, "condition": targeting});
    for push in [&named(&["crowd-0", "crowd-1"]), &targeted] {
        let id = stack.push(push).await;
        stack.closed(&id).await;
    }
    let expected =
        [("slots", 2.0, 524_288.0), ("dictionaries", 1.0, 65_536.0), ("buckets", 1.0, 1024.0)];
    for (cache, entries, limit) in expected {
        let of = |name| format!(r#"push_index_cache_{name}{{cache="{cache}"}}"#);
        until(&worker, &of("entries"), |seen| seen == entries).await;
        assert_are(&worker, &[(&of("limit"), limit)]).await;
    }
    // Each device is looked for in the map once; from then on it is in the cache.
    let of = |cache, result| {
        format!(r#"push_index_cache_lookups_total{{cache="{cache}",result="{result}"}}"#)
    };
    let first = [("slots", "hit", 0.0), ("slots", "miss", 2.0), ("dictionaries", "miss", 1.0)];
    for (cache, result, lookups) in first {
        until(&worker, &of(cache, result), |seen| seen == lookups).await;
    }
    // One that does not exist is looked for in the map each time, whose size is known by now.
    let buckets = worker.metric(&of("buckets", "hit")).await;
    let id = stack.push(&named(&["crowd-0", "crowd-1", "nowhere"])).await;
    stack.closed(&id).await;
    let then = [("slots", "hit", 2.0), ("slots", "miss", 2.0), ("dictionaries", "miss", 1.0)];
    for (cache, result, lookups) in then {
        until(&worker, &of(cache, result), |seen| seen == lookups).await;
    }
    until(&worker, &of("buckets", "hit"), |seen| seen == buckets + 1.0).await;
    let more = worker.metric(&of("dictionaries", "hit")).await;
    stack.closed(&stack.push(&targeted).await).await;
    until(&worker, &of("dictionaries", "hit"), |seen| seen > more).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_embedded_stores_are_as_large_as_the_metrics_say_and_have_readers() {
    let folder = tempfile::tempdir().unwrap();
    let (http, mqtt) = (free_port().unwrap(), free_port().unwrap());
    let (http, mqtt) = (http.address(), mqtt.address());
    let data_dir = folder.path().to_str().unwrap();
    let flags = ["standalone", "--listen", &http, "--mqtt-listen", &mqtt, "--data-dir", data_dir];
    let standalone = Program::start_ready("pushctl", &[&flags[..], &OFTEN].concat()).await;
    for store in ["queue", "index"] {
        let of = |name| format!(r#"push_store_{name}{{store="{store}"}}"#);
        let file = of("file_bytes");
        eventually(&format!("{file} is the size of the file and its log"), DEADLINE, async || {
            let size = |end| {
                let path = folder.path().join(format!("{store}.sqlite3{end}"));
                fs::metadata(path).map_or(0, |file| file.len())
            };
            let (seen, is) = (standalone.metric(&file).await, size("") + size("-wal"));
            if is > 0 && seen == is as f64 { Ok(()) } else { Err(format!("{seen}, not {is}")) }
        })
        .await;
        // The disk has room for more than a store that is new.
        let free = standalone.metric(&of("disk_free_bytes")).await;
        assert!(free > standalone.metric(&file).await, "{free}");
        let readers = standalone.metric(&of("readers_limit")).await;
        assert_eq!(readers, 4.0);
        assert!(standalone.metrics().await.contains(&of("readers_in_use")));
    }
}

/// Deadline of a scrape while a store is frozen.
const SCRAPE: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_is_answered_at_once_while_a_store_is_frozen() {
    let redis = Redis::start().await.unwrap();
    let stack = Stack::start(Servers { redis: redis.url(), ..Servers::shared() }).await;
    let worker = stack.worker(&OFTEN).await;
    until(&worker, r#"push_store_up{store="index"}"#, |up| up == 1.0).await;
    redis.freeze().unwrap();
    for _ in 0..3 {
        let text = tokio::time::timeout(SCRAPE, worker.metrics()).await.expect("an answer");
        assert!(text.contains("push_worker_devices_total"), "{text}");
    }
    redis.thaw().unwrap();
}
