//! The `ingest` program: settings, engines, run, drain.

use std::{process::ExitCode, sync::Arc};

use anyhow::Context as _;
use clap::Parser;
use prometheus_client::registry::Registry;
use push_ingest::{IngestArgs, Listener, Metrics, ReadinessProbe, Settings, run_with_metrics};
use push_service::{
    command_line,
    credentials::CredentialArgs,
    descriptors,
    engines::{EngineArgs, EngineSettings, open_index, open_queue},
    operations,
    runtime::{self, RuntimeArgs},
    settings::ConfigErrors,
    shutdown,
    telemetry::{self, LogArgs},
    traces::{TraceArgs, Traces},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Takes pushes over HTTP, checks them, and answers once the queue has them.
#[derive(Debug, Parser)]
#[command(name = "ingest", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    ingest: IngestArgs,
    #[command(flatten)]
    engines: EngineArgs,
    #[command(flatten)]
    credentials: CredentialArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    traces: TraceArgs,
}

fn main() -> ExitCode {
    match start(&command_line::parse::<Cli>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => telemetry::failed(&format!("{error:#}")),
    }
}

fn start(cli: &Cli) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::default();
    let log = cli.log.check(telemetry::DEFAULT_FILTER, &mut errors);
    let engines = cli.engines.check(&mut errors);
    let retention = engines.as_ref().map(|engines| engines.ledger_retention);
    let settings = cli.ingest.check(retention, &mut errors);
    let credentials = cli.credentials.check(&mut errors);
    let threads = cli.runtime.check(&mut errors);
    if let (Some(settings), Some(credentials)) = (&settings, &credentials) {
        settings.check_device_keys(credentials, &mut errors);
    }
    let namespace = engines.as_ref().map(|engines| &*engines.namespace);
    let traces = cli.traces.check(namespace, &mut errors);
    let settings = settings.zip(engines).zip(credentials).zip(threads.zip(traces));
    let (((mut settings, engines), credentials), (threads, traces)) = errors.finish(settings)?;
    let traces = Traces::new(traces, "ingest");
    telemetry::init(log, &traces);
    settings.is_traced = traces.is_on();
    settings.http.fit(descriptors::raise());
    settings.device_credentials = credentials.open()?;
    let runtime = runtime::start(threads).context("cannot start threads")?;
    runtime.block_on(run(settings, engines, traces))
}

async fn run(
    settings: Settings,
    engines: EngineSettings,
    mut traces: Traces,
) -> anyhow::Result<()> {
    let listener = Listener::bind(&settings).await?;
    let ops = TcpListener::bind(settings.ops_listen)
        .await
        .with_context(|| format!("cannot listen on {}", settings.ops_listen))?;
    let queue = open_queue(&engines, "ingest")
        .await
        .with_context(|| format!("cannot use the queue at {}", engines.queue))?;
    let index = open_index(&engines)
        .await
        .with_context(|| format!("cannot use the index at {}", engines.index))?;

    let shutdown = shutdown::on_signal();
    let metrics = Arc::new(Metrics::default());
    let mut registry = Registry::default();
    operations::process::register(&mut registry, "ingest");
    metrics.register(&mut registry);
    traces.start(&mut registry);
    let probe = Arc::new(ReadinessProbe {
        queue: queue.clone(),
        index: index.clone(),
        shutdown: shutdown.clone(),
    });
    let ops_done = CancellationToken::new();
    let (http_address, ops_address) = (listener.local_addr()?, ops.local_addr()?);
    let serving = tokio::spawn(push_service::operations::serve(
        ops,
        Arc::new(registry),
        probe,
        ops_done.clone(),
    ));
    info!(http = %http_address, scheme = listener.scheme(), ops = %ops_address, queue = %engines.queue, index = %engines.index, "ingest started");

    let result =
        run_with_metrics(settings, listener, queue.clone(), index, metrics, shutdown).await;
    queue.close().await;
    traces.finish().await;
    ops_done.cancel();
    serving.await?;
    info!("ingest stopped");
    Ok(result?)
}
