//! `fanout-worker`: settings, engines, transports, run, drain.

use std::process::ExitCode;

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use push_boot::{
    command_line, descriptors,
    engines::{EngineSettings, open_index_at_start, open_queue_at_start},
    metrics::{MetricsSettings, StoreMetrics},
    operations::{
        self, Operations,
        health::{Health, HealthSettings},
    },
    runtime,
    settings::ConfigErrors,
    shutdown, telemetry,
    traces::Traces,
};
use push_fanout_worker::{
    Cli, Dependencies, Metrics, Observation, ProcessSettings, WorkerSettings, readiness, run,
};
use push_transports::{TransportSettings, Transports};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

fn main() -> ExitCode {
    match start(command_line::parse::<Cli>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => telemetry::failed(&format!("{error:#}")),
    }
}

fn start(cli: Cli) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::tuned(&cli.tune);
    let log = cli.log.check(telemetry::DEFAULT_FILTER, &mut errors);
    let process = cli.process.check(&mut errors);
    let engines = cli.engines.check(&mut errors);
    let transports = cli.transports.check(&mut errors);
    let retention = engines.as_ref().map(|engines| engines.ledger_retention);
    let worker = cli.worker.check(retention, &mut errors);
    let health = HealthSettings::read(&mut errors);
    let threads = runtime::threads(errors.tuning());
    let metrics = cli.metrics.check(&mut errors);
    let namespace = engines.as_ref().map(|engines| &*engines.namespace);
    let traces = cli.traces.check(namespace, &mut errors);
    let all = process.zip(engines).zip(transports.zip(worker)).zip(metrics.zip(traces));
    let (((process, engines), (transports, worker)), (metrics, traces)) = errors.finish(all)?;
    let traces = Traces::new(traces, "fanout-worker");
    telemetry::init(log, &traces);
    descriptors::raise();
    let runtime = runtime::start(threads).context("cannot start threads")?;
    runtime::run(runtime, work(process, engines, transports, worker, health, metrics, traces))
}

async fn work(
    process: ProcessSettings,
    engines: EngineSettings,
    transports: TransportSettings,
    worker: WorkerSettings,
    health: HealthSettings,
    metrics: MetricsSettings,
    mut traces: Traces,
) -> anyhow::Result<()> {
    let ops = TcpListener::bind(process.ops_listen)
        .await
        .with_context(|| format!("cannot listen on {}", process.ops_listen))?;
    let shutdown = shutdown::on_signal();
    let health = Health::starting(health, shutdown.clone());
    let operations = Operations::start(ops, health.clone());
    let queue = open_queue_at_start(&engines, "fanout-worker", &health)
        .await
        .with_context(|| format!("cannot use the queue at {}", engines.queue))?;
    let index = open_index_at_start(&engines, &health).await?;
    let transports = Transports::from_settings(transports);
    let mut registry = Registry::default();
    let stores = StoreMetrics::register(&mut registry, queue.clone(), index.clone());
    let dependencies = Dependencies {
        metrics: Metrics::new(metrics.apps),
        observation: Some(Observation { interval: metrics.interval, stores: stores.clone() }),
        ..Dependencies::new(queue.clone(), index, transports.clone())
    };
    operations::process::register(&mut registry, "fanout-worker");
    dependencies.metrics.register(&mut registry);
    transports.register(&mut registry);
    traces.start(&mut registry);
    operations.publish(registry);
    readiness::watch(&health, &dependencies);
    health.complete();
    let reading = CancellationToken::new();
    tokio::spawn(stores.keep_reading(metrics.interval, reading.clone()));
    info!(ops = %process.ops_listen, queue = %engines.queue, index = %engines.index, "worker started");

    let result = run(worker, dependencies, process.drain_deadline, shutdown).await;
    transports.close().await;
    queue.close().await;
    reading.cancel();
    traces.finish().await;
    operations.stop().await;
    result.context("the worker stopped by itself")
}
