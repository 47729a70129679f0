//! The `ingest` program: settings, engines, run, drain.

use std::{process::ExitCode, sync::Arc};

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
use push_ingest::{Cli, Listener, Metrics, Settings, readiness, run_with_metrics};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

fn main() -> ExitCode {
    match start(&command_line::parse::<Cli>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => telemetry::failed(&format!("{error:#}")),
    }
}

fn start(cli: &Cli) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::tuned(&cli.tune);
    let log = cli.log.check(telemetry::DEFAULT_FILTER, &mut errors);
    let engines = cli.engines.check(&mut errors);
    let retention = engines.as_ref().map(|engines| engines.ledger_retention);
    let settings = cli.ingest.check(retention, &mut errors);
    let proxies = cli.proxies.check(&mut errors);
    let credentials = cli.credentials.check(&mut errors);
    let health = HealthSettings::read(&mut errors);
    let threads = runtime::threads(errors.tuning());
    let metrics = cli.metrics.check(&mut errors);
    if let (Some(settings), Some(credentials)) = (&settings, &credentials) {
        settings.check_device_keys(credentials, &mut errors);
    }
    let namespace = engines.as_ref().map(|engines| &*engines.namespace);
    let traces = cli.traces.check(namespace, &mut errors);
    let settings = settings.zip(proxies).zip(engines).zip(credentials).zip(metrics.zip(traces));
    let ((((mut settings, proxies), engines), credentials), (metrics, traces)) =
        errors.finish(settings)?;
    let traces = Traces::new(traces, "ingest");
    telemetry::init(log, &traces);
    settings.is_traced = traces.is_on();
    settings.http.fit(descriptors::raise());
    settings.http.trusted_proxies = proxies;
    settings.device_credentials = credentials.open()?;
    let runtime = runtime::start(threads).context("cannot start threads")?;
    runtime::run(runtime, run(settings, engines, health, metrics, traces))
}

async fn run(
    settings: Settings,
    engines: EngineSettings,
    health: HealthSettings,
    metrics_settings: MetricsSettings,
    mut traces: Traces,
) -> anyhow::Result<()> {
    let ops = TcpListener::bind(settings.ops_listen)
        .await
        .with_context(|| format!("cannot listen on {}", settings.ops_listen))?;
    let ops_address = ops.local_addr()?;
    let shutdown = shutdown::on_signal();
    let health = Health::starting(health, shutdown.clone());
    let operations = Operations::start(ops, health.clone());
    let queue = open_queue_at_start(&engines, "ingest", &health)
        .await
        .with_context(|| format!("cannot use the queue at {}", engines.queue))?;
    let index = open_index_at_start(&engines, &health).await?;
    // Not sooner: connections would wait in the backlog for as long as the servers are awaited.
    let listener = Listener::bind(&settings).await?;

    let metrics = Arc::new(Metrics::new(metrics_settings.apps));
    let mut registry = Registry::default();
    operations::process::register(&mut registry, "ingest");
    metrics.register(&mut registry);
    let stores = StoreMetrics::register(&mut registry, queue.clone(), index.clone());
    traces.start(&mut registry);
    operations.publish(registry);
    readiness::watch(&health, &queue, &index);
    health.complete();
    let reading = CancellationToken::new();
    tokio::spawn(stores.keep_reading(metrics_settings.interval, reading.clone()));
    let http_address = listener.local_addr()?;
    info!(http = %http_address, scheme = listener.scheme(), ops = %ops_address, queue = %engines.queue, index = %engines.index, "ingest started");

    let result =
        run_with_metrics(settings, listener, queue.clone(), index, metrics, shutdown).await;
    queue.close().await;
    reading.cancel();
    traces.finish().await;
    operations.stop().await;
    info!("ingest stopped");
    Ok(result?)
}
