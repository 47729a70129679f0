//! Apps that register ever more different values of an attribute, and pushes that name thousands of them.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use push_ledger::{Ledger as _, redis::RedisLedger};
use push_model::app::AppKey;
use push_store::redis::{RedisSettings, RedisStore};
use push_tests::{
    broadcast::everyone,
    eventually,
    servers::{Redis, redis_connection},
    service::{Program, pushctl_output, request},
    stack::{APP, Servers, Stack},
};
use serde_json::{Value, json};
use tokio::time::timeout;

/// The most different values of an attribute.
const VALUES: usize = 65_535;
/// The most that a worker's rounds of a sweep may take on a busy machine.
const SWEPT: Duration = Duration::from_secs(240);

/// Kilobytes that a process has in memory.
fn resident(program: &Program) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn admin(redis: &Redis) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(redis.url()).unwrap();
    redis_connection(&client).await.unwrap()
}

/// Kilobytes that Redis uses.
async fn used(admin: &mut redis::aio::MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO").arg("memory").query_async(admin).await.unwrap();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    used.parse::<u64>().unwrap() / 1024
}

/// Lets the times be over that a sweep waits between its steps.
async fn let_time_pass(admin: &mut redis::aio::MultiplexedConnection, namespace: &str) {
    let pattern = format!("{namespace}:*:d");
    let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(admin).await.unwrap();
    for key in keys {
        for field in ["retired_at", "reuse_at"] {
            let mut get = redis::cmd("HGET");
            let time: Option<u64> = get.arg(&key).arg(field).query_async(admin).await.unwrap();
            let Some(time) = time.filter(|time| *time > 0) else { continue };
            let mut set = redis::cmd("HSET");
            let before = time.saturating_sub(1000);
            let _: i64 = set.arg(&key).arg(field).arg(before).query_async(admin).await.unwrap();
        }
    }
}

/// A push to the devices with these attributes.
fn targeted(targeting: Value) -> Value {
    let mut push = everyone();
    push["condition"] = json!({"type": 1, "targeting": targeting});
    push
}

#[tokio::test(flavor = "multi_thread")]
async fn one_device_with_every_value_keeps_no_other_from_registering_and_its_values_are_freed() {
    let redis = Redis::start().await.unwrap();
    let stack = Stack::start(Servers { redis: redis.url(), ..Servers::shared() }).await;
    let worker = stack.worker(&[]).await;
    let mut admin = admin(&redis).await;
    let before = (used(&mut admin).await, resident(stack.ingest()));

    let mut lines = String::new();
    for number in 0..VALUES {
        writeln!(lines, r#"{{"client_id":"one","app_version":"1.{number}"}}"#).unwrap();
    }
    stack.import(&lines).await;
    let register = async || {
        let path = format!("/v1/device/{APP}/honest");
        let record = json!({"app_version": "9.9", "transport": "discard"});
        let (status, answer) = stack.call_at(0, "PUT", &path, &[], &record).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["warnings"].to_string()
    };
    let warnings = register().await;
    assert!(warnings.contains("app_version"), "{warnings}");
    let after = (used(&mut admin).await, resident(stack.ingest()));
    let grown = (after.0 - before.0, after.1.saturating_sub(before.1));
    assert!(grown.0 < 24 * 1024 && grown.1 < 24 * 1024, "Redis and ingest grew by {grown:?} kB");

    let found = pushctl_output(&[&stack.engines()[..], &["doctor"]].concat()).await;
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.contains(&format!("app_version of {APP} (100 %)")), "{found}");

    eventually("a new value finds room", SWEPT, async || {
        let_time_pass(&mut self::admin(&redis).await, &stack.namespace).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let warnings = register().await;
        if warnings == "null" { Ok(()) } else { Err(warnings) }
    })
    .await;
    assert!(worker.metric("push_worker_dictionary_values_freed_total").await > 60_000.0);
    let id = stack.push(&targeted(json!({"app_version": ["9.9"]}))).await;
    assert_eq!(stack.closed(&id).await["targeted"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_that_name_ten_thousand_of_65_000_languages_hold_up_neither_probes_nor_other_apps() {
    let stack = Stack::start(Servers::shared()).await;
    let worker = stack.worker(&[]).await;
    let letters = |n: usize| [n / 676, n / 26, n].map(|n| char::from(b'a' + (n % 26) as u8));
    let tags: Vec<String> = (0..65_000)
        .map(|n| {
            format!("{}-{}", String::from_iter(letters(n)), ["DE", "FR", "GB", "CN"][n / 17_576])
        })
        .collect();
    let mut lines = String::new();
    for (number, tag) in tags.iter().enumerate() {
        let id = number % 1000;
        writeln!(lines, r#"{{"client_id":"d{id}","language":"{tag}","transport":"discard"}}"#)
            .unwrap();
    }
    stack.import(&lines).await;
    let other = stack.pushctl(&["app", "create", "other", "--json"]).await;
    let other: Value = serde_json::from_str(&other).unwrap();
    let secret = other["secret"].as_str().unwrap().to_owned();
    let call = async |method: &str, path: &str, body: &str| {
        let headers = [("authorization", &*secret), ("content-type", "application/json")];
        let url = format!("{}{path}", stack.ingest_url(0));
        let (status, text) = request(method, &url, &headers, body).await.unwrap();
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    call("PUT", "/v1/device/other/o", r#"{"transport":"discard"}"#).await;

    let mut heavy = Vec::new();
    for first in 0..3 {
        let named: Vec<&String> = tags.iter().skip(first).step_by(6).take(10_000).collect();
        heavy.push(stack.push(&targeted(json!({"language": named}))).await);
    }
    let livez = format!("http://{}/livez", worker.ops_address());
    let mut single = everyone();
    single["condition"] = json!({"type": 2, "client_ids": ["o"]});
    let single = single.to_string();
    let (mut rounds, begun) = (0, Instant::now());
    loop {
        let asked = request("GET", &livez, &[], "");
        let (status, _) = timeout(Duration::from_secs(1), asked).await.expect("alive").unwrap();
        assert_eq!(status, 200);
        let sent = Instant::now();
        let pushed = call("POST", "/v1/message/push/other", &single).await;
        let id = pushed["result"]["message_id"].as_str().unwrap().to_owned();
        loop {
            let path = format!("/v1/message/other/{id}");
            let url = format!("{}{path}", stack.ingest_url(0));
            let (_, text) = request("GET", &url, &[("authorization", &secret)], "").await.unwrap();
            if text.contains(r#""state":"done""#) {
                break;
            }
            assert!(sent.elapsed() < Duration::from_secs(5), "after {:?}: {text}", begun.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        rounds += 1;
        let mut open = 0;
        for id in &heavy {
            open += usize::from(stack.ledger(id).await["state"] != "done");
        }
        if open == 0 && rounds >= 5 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{open} are open");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_of_half_a_megabyte_is_not_sent_to_the_queue_once_for_each_of_64_partitions() {
    let servers = Servers::shared();
    let redis = servers.redis.clone();
    let stack = Stack::start(servers).await;
    let _worker = stack.worker(&["--tune=partition-min-slots=1"]).await;
    let mut lines = String::new();
    for number in 0..2000 {
        let transport = ["discard", "mqtt"][number % 2];
        writeln!(
            lines,
            r#"{{"client_id":"d{number}","app_version":"1","transport":"{transport}"}}"#
        )
        .unwrap();
    }
    stack.import(&lines).await;
    let store =
        RedisStore::connect(&redis, &stack.namespace, RedisSettings::default()).await.unwrap();
    let ledger = RedisLedger::new(store);
    let partitions = async |body: &Value| {
        let (id, app) = (stack.push(body).await, AppKey::first(APP.parse().unwrap()));
        eventually("a plan", Duration::from_secs(30), async || {
            let entry = ledger.entry(&app, &id.parse().unwrap()).await.unwrap();
            let plan = entry.and_then(|entry| entry.plan);
            plan.map(|plan| plan.partitions.len()).ok_or_else(|| "no plan yet".to_owned())
        })
        .await
    };
    let small = targeted(json!({"app_version": ["1", "2"]}));
    assert_eq!(partitions(&small).await, 64, "a short list changes nothing");
    let mut values: Vec<String> = (0..4000).map(|n| format!("{n:0>120}")).collect();
    values.push("1".to_owned());
    let large = targeted(json!({"app_version": values}));
    let (bytes, partitions) = (large.to_string().len(), partitions(&large).await);
    assert!(bytes > 480_000 && bytes * partitions <= 2 << 20, "{partitions} of {bytes} bytes");
    assert!(partitions >= 2, "each transport has one of its own");
}
