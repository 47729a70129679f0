//! The `fanout-worker` program: settings, engines, transports, run.

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
use push_credentials::SealFile;
use push_fanout_worker::{Cli, Dependencies, ProcessSettings, WorkerSettings, readiness, run};
use push_model::time::UnixMillis;
use push_transports::{TransportSettings, Transports, http::StoredProviders};
use tracing::info;

fn main() -> ExitCode {
    program::main(start)
}

fn start(cli: Cli) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::tuned(&cli.tune);
    let process = cli.process.check(&mut errors);
    let engines = cli.engines.check(&mut errors);
    let transports = cli.transports.check(&mut errors).zip(cli.seal.check(&mut errors));
    let retention = engines.as_ref().map(|engines| engines.ledger_retention);
    let worker = cli.worker.check(retention, &mut errors);
    let threads = runtime::threads(errors.tuning());
    let namespace = engines.as_ref().map(|engines| &*engines.namespace);
    let program = cli.program.check(log::DEFAULT_FILTER, namespace, &mut errors);
    let all = (|| Some((process?, engines?, transports?, worker?, program?)))();
    let (process, engines, transports, worker, (program, metrics)) = errors.finish(all)?;
    let (transports, seal) = (transports.0, transports.1.open()?);
    let program = Program::begin("fanout-worker", program);
    let runtime = runtime::start(threads).context("cannot start threads")?;
    runtime::run(runtime, work(program, process, engines, (transports, seal), worker, metrics))
}

async fn work(
    program: Program,
    process: ProcessSettings,
    engines: EngineSettings,
    (transports, seal): (TransportSettings, Option<Arc<SealFile>>),
    worker: WorkerSettings,
    metrics: MetricsSettings,
) -> anyhow::Result<()> {
    let mut start = program.start(process.ops_listen).await?;
    let opened = start.open_engines(&engines, metrics).await?;
    let index = opened.stores.index.clone();
    let providers = StoredProviders::new(index, seal, Arc::new(UnixMillis::now));
    let transports = Transports::from_settings(transports, Arc::new(providers))?;
    transports.register(&mut start.registry);
    let dependencies = Dependencies::observed(&opened, transports.clone(), metrics);
    dependencies.metrics.register(&mut start.registry);
    readiness::watch(&start.health, &dependencies);
    let counted = dependencies.metrics.clone();
    let announcement = Announcement {
        worker: Some(Box::new(move || counted.counts())),
        ..Announcement::default()
    };
    start.announce(opened.stores.index, announcement);
    let ops = start.ops_address();
    info!(%ops, queue = %engines.queue, index = %engines.index, "worker started");
    let mut service = start.complete();
    service.run(Stage::Deliveries, "the worker", |stop| {
        run(worker, dependencies, process.drain_deadline, stop)
    });
    service.close(Stage::Transports, async move {
        transports.close().await;
        Ok(())
    });
    service.until_stopped().await
}
