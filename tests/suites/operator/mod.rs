//! The service as an operator sees and runs it: messages on their way, a backlog, readiness, running
//! programs, and apps that are moved, backed up and restored.

mod config_file;
mod dashboard;
mod doctor;
mod metrics;
mod metrics_page;
mod presence;
mod promtool;
mod readiness;
mod secret_files;
mod transfer;

use std::{collections::BTreeSet, process::Stdio};

use push_tests::{
    eventually, redis_url,
    servers::{RabbitMq, Redis, redis_connection},
    service::{Program, built, pushctl_output},
    stack::{APP, DEADLINE, Servers, Stack},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout, Command},
    time::timeout,
};

/// Flags of a worker: small batches, so that a broadcast lasts.
const SMALL_STEPS: [&str; 6] =
    ["--batch", "50", "--tune", "partition-min-slots=1000", "--task-prefetch", "2"];

fn everyone(time_to_live: u64) -> Value {
    json!({"type": 2, "time_to_live": time_to_live, "condition": {"type": 0}})
}

/// A `pushctl` that runs for a while, and the lines that it prints meanwhile.
struct Running {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Running {
    fn start(service: &Stack, command: &[&str]) -> Self {
        let mut child = Command::new(built("pushctl"))
            .args(service.engines())
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let err = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, out, err }
    }

    /// Sends SIGINT, as Ctrl-C does.
    fn interrupt(&self) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), Signal::INT).unwrap();
    }

    async fn succeeded(&mut self) -> bool {
        timeout(DEADLINE, self.child.wait()).await.expect("it ends").unwrap().success()
    }
}

async fn next_line(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>) -> Option<String> {
    timeout(DEADLINE, lines.next_line()).await.expect("another line or the end").unwrap()
}

/// Reads the next line of standard error, which must contain `what`.
async fn says(running: &mut Running, what: &str) {
    let line = next_line(&mut running.err).await.unwrap_or_default();
    assert!(line.contains(what), "{line:?} instead of {what:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_is_watched_from_before_its_worker_to_its_end_through_outages() {
    let mut redis = Redis::start().await.unwrap();
    let service = Stack::start(Servers { redis: redis.url(), ..Servers::shared() }).await;
    service.import_crowd(40_000, 0).await;
    let id = service.push(&everyone(600)).await;
    let command = ["message", "watch", APP, &id, "--interval", "50ms", "--json"];
    let mut watch = Running::start(&service, &command);
    says(&mut watch, "no worker has begun").await;

    // Slow enough to be seen in its middle.
    service.pushctl(&["app", "set", APP, "--pace", "500"]).await;
    let mut worker = service.worker(&SMALL_STEPS).await;
    service.under_way(&id).await;
    worker.process().kill();
    let halfway = service.ledger(&id).await;
    assert_eq!(halfway["state"], "sending", "{halfway}");
    let mut updates: Vec<Value> = Vec::new();
    while updates.last().is_none_or(|update| update["sent"] != halfway["sent"]) {
        let line = next_line(&mut watch.out).await.expect("it goes on");
        updates.push(serde_json::from_str(&line).unwrap());
    }

    redis.kill();
    says(&mut watch, "trying for 60s").await;
    redis.restart().await.unwrap();
    says(&mut watch, "the index answers again").await;

    service.pushctl(&["app", "set", APP, "--pace", "none"]).await;
    let _other = service.worker(&SMALL_STEPS).await;
    while let Some(line) = next_line(&mut watch.out).await {
        updates.push(serde_json::from_str(&line).unwrap());
    }
    assert!(watch.succeeded().await);
    let last = updates.pop().unwrap();
    let shown = service.pushctl(&["message", "show", APP, &id, "--json"]).await;
    assert_eq!(last, serde_json::from_str::<Value>(&shown).unwrap());
    assert_eq!((&last["state"], &last["sent"]), (&json!("done"), &json!(40_000)));
    for field in ["progress", "sent"] {
        let seen: Vec<f64> = updates.iter().filter_map(|update| update[field].as_f64()).collect();
        assert!(seen.is_sorted() && !seen.is_empty(), "{field}: {seen:?}");
    }
    let middle = |update: &&Value| update["progress"].as_f64().is_some_and(|p| p > 0.0 && p < 1.0);
    let middle = updates.iter().rfind(middle).expect("it was seen in its middle");
    assert!(middle["devices_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{middle}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_ends_with_an_error_when_its_time_is_over_or_it_is_stopped() {
    let service = Stack::start(Servers::shared()).await;
    let id = service.push(&everyone(600)).await;
    let mut late = Running::start(&service, &["message", "watch", APP, &id, "--timeout", "200ms"]);
    // Before a wait is worth a line.
    says(&mut late, "error: not closed within 200ms: message").await;
    assert!(!late.succeeded().await);

    let mut stopped = Running::start(&service, &["message", "watch", APP, &id]);
    says(&mut stopped, "no worker has begun").await;
    stopped.interrupt();
    says(&mut stopped, "error: stopped by a signal: message").await;
    assert!(!stopped.succeeded().await);

    let mut nowhere = Running::start(&service, &["message", "watch", "no-such-app", &id]);
    says(&mut nowhere, "error: there is no app no-such-app in this store").await;
    assert!(!nowhere.succeeded().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_the_index_refuses_does_not_wait_for_a_program_that_still_writes() {
    let service = Stack::start(Servers::shared()).await;
    let server = redis::Client::open(redis_url()).unwrap();
    let mut connection = redis_connection(&server).await.unwrap();
    let mut other_layout = redis::pipe();
    for shard in 0..64 {
        let shard = format!("{}:{{{APP}/{shard}}}", service.namespace);
        other_layout.hset_multiple(shard, &[("height", 1), ("layout", 2)]);
    }
    other_layout.query_async::<()>(&mut connection).await.unwrap();

    let mut import = Running::start(&service, &["device", "import", APP, "-"]);
    let mut input = import.child.stdin.take().unwrap();
    // Enough that some are stored before all are read.
    let devices: String = (0..5000).map(|n| format!("{{\"client_id\":\"{n}\"}}\n")).collect();
    input.write_all(devices.as_bytes()).await.unwrap();
    says(&mut import, "written by another version of this program").await;
    assert!(!import.succeeded().await);
    drop(input);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pushes_are_sent_from_a_file_and_bad_lines_are_reported_by_number() {
    let service = Stack::start(Servers::shared()).await;
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [secret, pushes, answers] = ["secret", "pushes", "answers"].map(file);
    std::fs::write(&secret, service.secret()).unwrap();
    let url = service.ingest_url(0);
    let command = |file: &str| {
        ["push", APP, "--secret-file", &secret, "--server", &url, "--batch", file]
            .map(str::to_owned)
    };
    let good = everyone(600).to_string();
    let lines = |bad: &str| {
        let good = |count| vec![good.as_str(); count];
        [good(1200), vec!["", bad], good(300)].concat().join("\n")
    };
    std::fs::write(&pushes, lines("{}")).unwrap();
    let flags = [&command(&pushes)[..], &["--answers".into(), answers.clone()]].concat();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let output = pushctl_output(&flags).await;
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(!output.status.success(), "a line was not accepted");
    assert!(out.starts_with("1500 pushes accepted, 1 bad lines"), "{out}");
    let expected = "line 1202: 21005: Message illegal: type is required\n\
                    error: 1 lines were not accepted\n";
    assert_eq!(err, expected);
    let answers = std::fs::read_to_string(&answers).unwrap();
    let answers: Vec<Value> =
        answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 1501);
    assert_eq!(answers[1200]["line"], 1202);
    let id = answers[1500]["message_id"].as_str().unwrap();
    assert_eq!(service.ledger(id).await["state"], "accepted");
    let answered = "push_ingest_answers_total{call=\"push_batch\",status=\"200\"}";
    assert_eq!(service.ingest().metric(answered).await, 2.0, "in two requests");
    let taken = "push_ingest_answers_total{call=\"push_batch_line\",status=\"200\"}";
    assert_eq!(service.ingest().metric(taken).await, 1500.0);

    let from_pipe = [&command("-")[..], &["--json".into(), "--max-batch-lines=7".into()]].concat();
    let from_pipe: Vec<&str> = from_pipe.iter().map(String::as_str).collect();
    let mut push = Running::start(&service, &from_pipe);
    let mut input = push.child.stdin.take().unwrap();
    input.write_all(lines("").as_bytes()).await.unwrap();
    drop(input);
    let result = next_line(&mut push.out).await.unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!((&result["accepted"], &result["bad"]), (&json!(1500), &json!(0)), "{result}");
    assert!(push.succeeded().await);

    std::fs::write(&secret, "0".repeat(64)).unwrap();
    let refused = command(&pushes);
    let output = pushctl_output(&refused.each_ref().map(String::as_str)).await;
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.starts_with("error: stopped at line 1: refused with 21004: "), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_how_many_envelopes_wait_in_each_lane_and_leaves_them_there() {
    let service = Stack::start(Servers::shared()).await;
    service.import_crowd(3, 0).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(service.push(&everyone(600)).await);
    }
    let lane = |findings: &[Value], subject: &str| {
        let found = findings.iter().find(|finding| finding["subject"] == subject).unwrap();
        (found["level"].clone(), found["detail"].clone())
    };
    eventually("all envelopes are counted", DEADLINE, async || {
        let findings = service.pushctl(&["doctor", "--json"]).await;
        let findings: Vec<Value> = serde_json::from_str(&findings).unwrap();
        let lanes = ["lane jobs", "lane tasks"].map(|subject| lane(&findings, subject));
        let expected = ["3 envelopes wait", "0 envelopes wait"];
        let expected = expected.map(|detail| (json!("ok"), json!(detail)));
        if lanes == expected { Ok(()) } else { Err(format!("{lanes:?}")) }
    })
    .await;

    let _worker = service.worker(&[]).await;
    for id in &ids {
        assert_eq!(service.closed(id).await["sent"], 3);
    }
}

/// Allows consumers on every queue of this server, or on all but the task lanes.
async fn let_tasks_be_consumed(amqp: &RabbitMq, may: bool) {
    let readable = if may { ".*" } else { r"^(?!.*\.tasks$).*" };
    amqp.control(&["set_permissions", "guest", ".*", ".*", readable]).await.unwrap();
}

/// Waits until the worker is not ready for the only reason that it has no consumer on the task
/// lane.
async fn lacks_tasks_alone(worker: &Program) {
    eventually("the worker is not ready for want of tasks", DEADLINE, async || {
        let seen = worker.readiness().await?;
        let works = |part| seen.part(part)["status"] == "ok";
        let tasks_alone = works("queue") && works("lane jobs") && !works("lane tasks");
        if seen.code == 503 && tasks_alone { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_ready_only_while_it_consumes_both_lanes() {
    let amqp = RabbitMq::start().await.unwrap();
    let service = Stack::start(Servers { amqp: amqp.url(), ..Servers::shared() }).await;
    let_tasks_be_consumed(&amqp, false).await;
    let mut worker = service.start_worker(&[]);
    lacks_tasks_alone(&worker).await;

    let_tasks_be_consumed(&amqp, true).await;
    worker.wait_ready().await;
    let consumed = amqp.control(&["list_consumers", "--silent", "queue_name"]).await.unwrap();
    // Programs restore at times what a policy dropped.
    let consumed: BTreeSet<&str> =
        consumed.lines().filter(|queue| !queue.ends_with(".dropped")).collect();
    let lanes = ["jobs", "tasks"].map(|lane| format!("{}.{lane}", service.namespace));
    assert_eq!(consumed, lanes.iter().map(String::as_str).collect());

    // The same for a consumer that worked before and cannot be opened again.
    let_tasks_be_consumed(&amqp, false).await;
    amqp.control(&["close_all_connections", "maintenance"]).await.unwrap();
    lacks_tasks_alone(&worker).await;
    let_tasks_be_consumed(&amqp, true).await;
    worker.wait_ready().await;
}
