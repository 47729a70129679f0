//! The `ingest` program: settings, engines, listener, run.

use std::{process::ExitCode, sync::Arc};

use anyhow::Context as _;
use push_boot::{
    engines::EngineSettings,
    log,
    metrics::MetricsSettings,
    presence::Announcement,
    program::{self, Program, Stage},
    runtime,
    settings::ConfigErrors,
};
use push_ingest::{Cli, Listener, Metrics, Settings, readiness, run_with_metrics};
use tracing::info;

fn main() -> ExitCode {
    program::main(start)
}

fn start(cli: Cli) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::tuned(&cli.tune);
    let engines = cli.engines.check(&mut errors);
    let retention = engines.as_ref().map(|engines| engines.ledger_retention);
    let settings = cli.ingest.check(retention, &mut errors);
    let proxies = cli.proxies.check(&mut errors);
    let over_mqtt = cli.over_mqtt.check(&mut errors);
    let credentials = cli.credentials.check(&mut errors);
    let threads = runtime::threads(errors.tuning());
    let namespace = engines.as_ref().map(|engines| &*engines.namespace);
    let program = cli.program.check(log::DEFAULT_FILTER, namespace, &mut errors);
    if let (Some(settings), Some(credentials)) = (&settings, &credentials) {
        settings.check_device_keys(credentials, &mut errors);
    }
    let all = (|| Some(((settings?, over_mqtt?), proxies?, engines?, credentials?, program?)))();
    let ((mut settings, over_mqtt), proxies, engines, credentials, (program, metrics)) =
        errors.finish(all)?;
    settings.over_mqtt = over_mqtt;
    let program = Program::begin("ingest", program);
    settings.is_traced = program.is_traced();
    settings.http.fit(program.descriptors());
    settings.http.trusted_proxies = proxies;
    settings.device_credentials = credentials.open()?;
    let runtime = runtime::start(threads).context("cannot start threads")?;
    runtime::run(runtime, run(program, settings, engines, metrics))
}

async fn run(
    program: Program,
    settings: Settings,
    engines: EngineSettings,
    metrics: MetricsSettings,
) -> anyhow::Result<()> {
    let mut start = program.start(settings.ops_listen).await?;
    let opened = start.open_engines(&engines, metrics).await?;
    // Not sooner: connections would wait in the backlog for as long as the servers are awaited.
    let listener = Listener::bind(&settings).await?;
    let metrics = Arc::new(Metrics::new(metrics.apps));
    metrics.register(&mut start.registry);
    readiness::watch(&start.health, &opened.queue, &opened.stores);
    let counted = metrics.clone();
    let announcement = Announcement {
        listens: vec![("http", listener.local_addr()?)],
        ingest: Some(Box::new(move || counted.counts())),
        ..Announcement::default()
    };
    start.announce(opened.stores.index.clone(), announcement);
    let (http, scheme, ops) = (listener.local_addr()?, listener.scheme(), start.ops_address());
    info!(%http, scheme, %ops, queue = %engines.queue, index = %engines.index, "ingest started");
    let mut service = start.complete();
    service.run(Stage::Requests, "the HTTP endpoint", |stop| {
        run_with_metrics(settings, listener, opened.queue, opened.stores, metrics, stop)
    });
    service.until_stopped().await
}
