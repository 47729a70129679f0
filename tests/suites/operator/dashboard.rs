//! The dashboard with a real Prometheus: every query has data while the service works.

use std::{fs, path::Path};

use push_tests::{
    Port, eventually, free_port,
    servers::{Prometheus, RabbitMq, Redis},
    service::Program,
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::everyone;

/// The part of a query that shows 0 where no program has its metric. Queries are asked without it, since
/// it would hide a misspelt name: a worker has all metrics from its start.
const IF_ABSENT: &str = " or vector(0)";

/// Every query of the dashboard, as Grafana would send it for a short time.
fn queries() -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy/monitoring/grafana/dashboards/push.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets
        .map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "30s"))
        .map(|query| query.replace(IF_ABSENT, ""))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_has_data_while_the_service_works() {
    let redis = Redis::start().await.unwrap();
    redis.limit_memory(1 << 30).await.unwrap();
    let rabbitmq = RabbitMq::start_with_metrics().await.unwrap();
    let servers = Servers { redis: redis.url(), amqp: rabbitmq.url(), ..Servers::shared() };
    let stack = Stack::start(servers).await;
    let worker = stack
        .worker(&["--batch=50", "--tune=partition-min-slots=1000", "--tune=metrics-interval=1s"])
        .await;
    // The embedded stores and the embedded broker.
    let folder = TempDir::new().unwrap();
    let ports = [(); 2].map(|()| free_port().unwrap());
    let [http, mqtt] = ports.each_ref().map(Port::address);
    let data = folder.path().join("data");
    let flags = ["--data-dir", data.to_str().unwrap(), "--tune", "metrics-interval=1s"];
    let listen = ["--listen", &http, "--mqtt-listen", &mqtt];
    let command = [&["standalone"][..], &flags, &listen].concat();
    let standalone = Program::start_ready("pushctl", &command).await;

    let [ingest, fan_out, alone] = [stack.ingest(), &worker, &standalone].map(Program::ops_address);
    let broker = rabbitmq.metrics_address();
    let targets = [
        ("ingest", &*ingest),
        ("fanout-worker", &*fan_out),
        ("standalone", &*alone),
        ("rabbitmq", &*broker),
    ];
    let prometheus = Prometheus::start(&targets).await.unwrap();

    stack.import_crowd(20_000, 0).await;
    stack.pushctl(&["app", "set", APP, "--pace", "500"]).await;
    // Of two kinds of pushes, each with devices that are sent to, and one that fails.
    let named = json!({"type": 2, "time_to_live": 60,
        "condition": {"type": 2, "client_ids": ["crowd-1", "nowhere"]}});
    stack.push(&everyone(600)).await;
    let mut missing = queries();
    assert!(missing.len() > 40, "{missing:?}");
    eventually("every query has data", DEADLINE, async || {
        stack.push(&named).await;
        let mut left = Vec::new();
        for query in &missing {
            if !has_data(&prometheus, query).await {
                left.push(query.clone());
            }
        }
        missing = left;
        if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
    })
    .await;
}

/// Returns true if a query gives a number, not NaN.
async fn has_data(prometheus: &Prometheus, query: &str) -> bool {
    let series = prometheus.query(query).await.unwrap();
    series.iter().any(|series| series["value"][1] != "NaN")
}
