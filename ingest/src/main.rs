//! The `ingest` program: settings, engines, run, drain.

use std::{process::ExitCode, sync::Arc};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use push_ingest::{Cli, Listener, Metrics, ReadinessProbe, Settings, run_with_metrics};
use push_service::{
    command_line, descriptors,
    engines::{EngineSettings, open_index, open_queue},
    operations, runtime,
    settings::ConfigErrors,
    shutdown, telemetry,
};
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
    let settings = settings.zip(engines).zip(credentials).zip(threads);
    let (((mut settings, engines), credentials), threads) = errors.finish(settings)?;
    telemetry::init(log);
    settings.http.fit(descriptors::raise());
    settings.device_credentials = credentials.open()?;
    let runtime = runtime::start(threads).context("cannot start threads")?;
    runtime.block_on(run(settings, engines))
}

async fn run(settings: Settings, engines: EngineSettings) -> anyhow::Result<()> {
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
    ops_done.cancel();
    serving.await?;
    info!("ingest stopped");
    Ok(result?)
}
