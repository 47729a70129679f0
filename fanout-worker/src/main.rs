//! `fanout-worker`: settings, engines, transports, run, drain.

use std::{process::ExitCode, sync::Arc};

use anyhow::Context as _;
use clap::Parser;
use prometheus_client::registry::Registry;
use push_fanout_worker::{
    Dependencies, MqttArgs, ProcessArgs, ProcessSettings, Transports, WorkerArgs, WorkerSettings,
    readiness::ReadinessProbe,
    run,
    transport::{
        Discard,
        mqtt::{MqttSettings, MqttTransport},
    },
};
use push_model::device::TransportKind;
use push_mqtt::MqttUrl;
use push_service::{
    command_line, descriptors,
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

/// Takes accepted pushes from the queue, finds the devices they mean, and delivers.
#[derive(Debug, Parser)]
#[command(name = "fanout-worker", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    engines: EngineArgs,
    #[command(flatten)]
    mqtt: MqttArgs,
    #[command(flatten)]
    worker: WorkerArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    traces: TraceArgs,
}

fn main() -> ExitCode {
    match start(command_line::parse::<Cli>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => telemetry::failed(&format!("{error:#}")),
    }
}

fn start(cli: Cli) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::default();
    let log = cli.log.check(telemetry::DEFAULT_FILTER, &mut errors);
    let process = cli.process.check(&mut errors);
    let engines = cli.engines.check(&mut errors);
    let mqtt = cli.mqtt.check(&mut errors);
    let retention = engines.as_ref().map(|engines| engines.ledger_retention);
    let worker = cli.worker.check(retention, &mut errors);
    let threads = cli.runtime.check(&mut errors);
    let namespace = engines.as_ref().map(|engines| &*engines.namespace);
    let traces = cli.traces.check(namespace, &mut errors);
    let all = process.zip(engines).zip(mqtt.zip(worker)).zip(threads.zip(traces));
    let (((process, engines), (mqtt, worker)), (threads, traces)) = errors.finish(all)?;
    let traces = Traces::new(traces, "fanout-worker");
    telemetry::init(log, &traces);
    descriptors::raise();
    let runtime = runtime::start(threads).context("cannot start threads")?;
    runtime.block_on(work(process, engines, mqtt, worker, traces))
}

async fn work(
    process: ProcessSettings,
    engines: EngineSettings,
    mqtt: Option<(MqttUrl, MqttSettings)>,
    worker: WorkerSettings,
    mut traces: Traces,
) -> anyhow::Result<()> {
    let ops = TcpListener::bind(process.ops_listen)
        .await
        .with_context(|| format!("cannot listen on {}", process.ops_listen))?;
    let queue = open_queue(&engines, "fanout-worker")
        .await
        .with_context(|| format!("cannot use the queue at {}", engines.queue))?;
    let index = open_index(&engines)
        .await
        .with_context(|| format!("cannot use the index at {}", engines.index))?;
    let discard = Discard { latency: process.discard_latency };
    let mut transports = Transports::default().with(TransportKind::Discard, Arc::new(discard));
    if let Some((url, settings)) = mqtt {
        info!(broker = %url, "devices are reached over MQTT");
        transports =
            transports.with(TransportKind::Mqtt, Arc::new(MqttTransport::start(url, settings)));
    }
    let dependencies = Dependencies::new(queue.clone(), index, transports.clone());
    let mut registry = Registry::default();
    operations::process::register(&mut registry, "fanout-worker");
    dependencies.metrics.register(&mut registry);
    traces.start(&mut registry);
    let ready = Arc::new(ReadinessProbe::new(&dependencies));
    let ops_done = CancellationToken::new();
    let serving = tokio::spawn(push_service::operations::serve(
        ops,
        Arc::new(registry),
        ready,
        ops_done.clone(),
    ));
    info!(ops = %process.ops_listen, queue = %engines.queue, index = %engines.index, "worker started");

    let result = run(worker, dependencies, process.drain_deadline, shutdown::on_signal()).await;
    transports.close().await;
    queue.close().await;
    traces.finish().await;
    ops_done.cancel();
    serving.await?;
    result.context("the worker stopped by itself")
}
