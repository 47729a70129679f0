//! An app's pace over two workers, as its operator and its devices see it.
//!
//! No assertion depends on the speed of the machine: a slower one stays further below the pace, and
//! pushes that must not wait have to end before a broadcast that takes 100 s at its pace.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use push_tests::{
    eventually,
    service::request,
    stack::{APP, Servers, Stack},
};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(90);
/// Devices a second.
const PACE: u64 = 200;
/// Devices of the paced broadcast: 100 s at its pace.
const CROWD: u64 = 20_000;
/// Devices of the app without a pace.
const OTHERS: u64 = 5000;
/// Named devices of one push.
const NAMED: u64 = 20;
/// Flags of a worker: two partitions at the same time.
const WORKER: [&str; 4] = ["--tune", "partition-min-slots=1000", "--task-prefetch", "2"];
/// Devices that may be sent to and not counted yet: a batch of each partition in work, and the
/// named push.
const IN_FLIGHT: u64 = 2 * 2 * PACE / 2 + NAMED;

/// The most devices that may be sent to in `time`: its share of the pace, 2 s of unused pace, 1 s
/// that a named push may be ahead, and one batch.
fn bound(time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap() + 1;
    (millis + 2000 + 1000) * PACE / 1000 + PACE / 2
}

fn crowd(devices: u64) -> String {
    let mut lines = String::new();
    for n in 0..devices {
        writeln!(lines, r#"{{"client_id":"crowd-{n}","transport":"discard"}}"#).unwrap();
    }
    lines
}

fn to(condition: Value) -> Value {
    json!({"type": 2, "time_to_live": 600, "condition": condition})
}

/// A second app of a stack, without a pace.
struct OtherApp<'a> {
    service: &'a Stack,
    secret: String,
}

impl<'a> OtherApp<'a> {
    async fn with_devices(service: &'a Stack, devices: u64) -> Self {
        let made = service.pushctl(&["app", "create", "other", "--json"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), crowd(devices)).unwrap();
        let path = file.path().to_str().unwrap();
        service.pushctl(&["device", "import", "other", path]).await;
        Self { service, secret: made["secret"].as_str().unwrap().to_owned() }
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> Value {
        let url = format!("{}/v1/message/{path}", self.service.ingest_url(0));
        let headers =
            [("authorization", self.secret.as_str()), ("content-type", "application/json")];
        let (status, answer) = request(method, &url, &headers, body).await.unwrap();
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()["result"].clone()
    }
}

/// Devices of some messages that are counted as sent, and the time of that count.
struct Reading {
    before: Instant,
    after: Instant,
    sent: u64,
}

async fn read(service: &Stack, ids: &[String]) -> Reading {
    let (before, mut sent) = (Instant::now(), 0);
    for id in ids {
        sent += service.ledger(id).await["sent"].as_u64().unwrap_or_default();
    }
    Reading { before, after: Instant::now(), sent }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_together_keep_the_pace_of_an_app_and_hold_up_no_other_app() {
    let service = Stack::start(Servers::shared()).await;
    service.pushctl(&["app", "set", APP, "--pace", &PACE.to_string()]).await;
    service.import(&crowd(CROWD)).await;
    let other = OtherApp::with_devices(&service, OTHERS).await;
    let workers = [service.worker(&WORKER).await, service.worker(&WORKER).await];

    let began = Instant::now();
    let broadcast = service.push(&to(json!({"type": 0}))).await;
    let others = other.call("POST", "push/other", &to(json!({"type": 0})).to_string()).await;
    let others = others["message_id"].as_str().unwrap();
    eventually("the unused pace that was kept is used", DEADLINE, async || {
        let sent = read(&service, std::slice::from_ref(&broadcast)).await.sent;
        if sent >= 2 * PACE { Ok(()) } else { Err(format!("{sent} sent")) }
    })
    .await;
    let clients: Vec<String> = (0..NAMED).map(|n| format!("crowd-{n}")).collect();
    let named = service.push(&to(json!({"type": 2, "client_ids": clients}))).await;
    let ids = [broadcast.clone(), named.clone()];
    let mut readings: Vec<Reading> = Vec::new();
    while readings.last().is_none_or(|last| last.sent < 8 * PACE) {
        readings.push(read(&service, &ids).await);
        assert!(began.elapsed() < DEADLINE, "only {} are sent", readings.last().unwrap().sent);
        // The interval of the readings, not a wait for anything.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(service.closed(&named).await["sent"], NAMED);
    eventually("the other app's broadcast is sent", DEADLINE, async || {
        let ledger = other.call("GET", &format!("other/{others}"), "").await;
        if ledger["sent"] == OTHERS { Ok(()) } else { Err(ledger.to_string()) }
    })
    .await;
    let ledger = service.ledger(&broadcast).await;
    assert_eq!(ledger["state"], "sending", "the other messages did not wait for it: {ledger}");

    for (first, from) in readings.iter().enumerate() {
        let since = from.after - began;
        assert!(from.sent <= bound(since), "{} after {since:?}", from.sent);
        for to in &readings[first..] {
            let (time, devices) = (to.after - from.before, to.sent - from.sent);
            assert!(devices <= bound(time) + IN_FLIGHT, "{devices} in {time:?}");
        }
    }
    let mut put_off = 0.0;
    for worker in &workers {
        put_off += worker.metric(r#"push_worker_dispositions_total{disposition="wait"}"#).await;
    }
    assert!(put_off > 0.0, "no run ended because of the pace");

    // The new pace applies to the broadcast under way too: otherwise the rest would take longer than the deadline.
    let changed = service.pushctl(&["app", "set", APP, "--pace", "none", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&changed).unwrap()["pace"], Value::Null);
    let ledger = service.closed(&broadcast).await;
    assert_eq!((&ledger["targeted"], &ledger["sent"]), (&json!(CROWD), &json!(CROWD)), "{ledger}");
}
