//! `pushctl standalone`: the whole service in one process.
//!
//! HTTP endpoint, worker, MQTT broker for the devices, and the embedded engines of queue and index
//! in one data directory. It runs the same code as the separate programs, with other engines. Every
//! address is bound before anything is served, so that a port that is taken fails the start with one
//! clear error.

mod demo;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use prometheus_client::registry::Registry;
use push_boot::{
    credentials::CredentialSettings,
    descriptors,
    engines::{EngineSettings, open_index_at_start, open_queue_at_start},
    metrics::{MetricsArgs, MetricsSettings, StoreMetrics},
    operations::{
        self, Operations,
        health::{Health, HealthArgs, HealthSettings, watch_disk},
    },
    proxy_protocol::ProxyArgs,
    settings::ConfigErrors,
    shutdown,
    telemetry::{self, LogArgs, LogSettings},
    traces::{TraceArgs, TraceSettings, Traces},
};
use push_broker::{Broker, BrokerArgs, BrokerSettings, DeviceLogins, LoginLogSettings};
use push_fanout_worker::{Dependencies, Observation, WorkerArgs, WorkerSettings, readiness};
use push_ingest::{IngestArgs, Listener, Settings as IngestSettings};
use push_model::secret::Secret;
use push_mqtt::MqttUrl;
use push_transports::{
    TransportSettings, Transports,
    mqtt::{MqttSettings, MqttTuningArgs},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    cli::{bind, make_data_dir},
    output::Output,
};

/// The default of `--log` in a demo: log lines would bury its output.
const DEMO_LOG: &str = "warn";

/// Flags of `standalone`.
#[derive(Debug, clap::Args)]
pub struct StandaloneArgs {
    /// Make a demo app with devices that listen, push to them, and show which received what
    #[arg(long)]
    demo: bool,
    #[command(flatten)]
    broker: BrokerArgs,
    #[command(flatten)]
    ingest: IngestArgs,
    #[command(flatten)]
    proxies: ProxyArgs,
    #[command(flatten)]
    worker: WorkerArgs,
    #[command(flatten)]
    mqtt: MqttTuningArgs,
    #[command(flatten)]
    health: HealthArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    traces: TraceArgs,
}

/// Checked flags.
struct Settings {
    broker: BrokerSettings,
    ingest: IngestSettings,
    worker: WorkerSettings,
    mqtt: MqttSettings,
    health: HealthSettings,
    metrics: MetricsSettings,
    log: LogSettings,
    traces: Option<TraceSettings>,
    engines: EngineSettings,
    credentials: CredentialSettings,
}

impl StandaloneArgs {
    fn check(
        &self,
        engines: Option<EngineSettings>,
        credentials: Option<CredentialSettings>,
        mut errors: ConfigErrors,
    ) -> Result<Settings, ConfigErrors> {
        let broker = self.broker.check(&mut errors);
        if self.demo && broker.as_ref().is_some_and(|broker| broker.tls.is_some()) {
            errors.note(
                "--demo: its devices trust no private certificate: leave out --mqtt-tls-cert and \
                 --mqtt-tls-key",
            );
        }
        let default_log = if self.demo { DEMO_LOG } else { telemetry::DEFAULT_FILTER };
        let retention = engines.as_ref().map(|engines| engines.ledger_retention);
        let ingest = self.ingest.check(retention, &mut errors);
        if self.demo && ingest.as_ref().is_some_and(|ingest| ingest.tls.is_some()) {
            errors.note("--demo pushes in clear: leave out --tls-cert and --tls-key with it");
        }
        let proxies = self.proxies.check(&mut errors);
        let worker = self.worker.check(retention, &mut errors);
        let mqtt = self.mqtt.check(&mut errors);
        let health = self.health.check(&mut errors);
        let log = self.log.check(default_log, &mut errors);
        let metrics = self.metrics.check(&mut errors);
        let namespace = engines.as_ref().map(|engines| &*engines.namespace);
        let traces = self.traces.check(namespace, &mut errors);
        let settings = (|| {
            let (mut broker, mut ingest, proxies) = (broker?, ingest?, proxies?);
            (broker.trusted_proxies, ingest.http.trusted_proxies) = (proxies.clone(), proxies);
            Some(Settings {
                broker,
                ingest,
                worker: worker?,
                mqtt: mqtt?,
                health: health?,
                metrics: metrics?,
                log,
                traces: traces?,
                engines: engines?,
                credentials: credentials?,
            })
        })();
        errors.finish(settings)
    }
}

/// Runs until a signal stops it, then drains.
///
/// # Errors
/// If a setting is wrong, an address is taken, the data directory cannot be written, or the HTTP
/// endpoint or the worker stops by itself.
pub async fn run(
    args: StandaloneArgs,
    engines: Option<EngineSettings>,
    credentials: Option<CredentialSettings>,
    errors: ConfigErrors,
    data_dir: &Path,
    out: Output,
) -> anyhow::Result<()> {
    let mut settings = args.check(engines, credentials, errors)?;
    let mut traces = Traces::new(settings.traces, "standalone");
    telemetry::init(settings.log, &traces);
    settings.ingest.is_traced = traces.is_on();
    // Backends and devices have half each.
    let descriptors = descriptors::raise().half();
    settings.ingest.http.fit(descriptors);
    settings.broker.fit(descriptors);
    make_data_dir(data_dir)?;
    settings.broker.save_in(data_dir);
    let interval = settings.ingest.apps.activity_interval;
    settings.broker.login_log = LoginLogSettings { program: "standalone", interval };
    let credentials = settings.credentials.open_or_create_in(data_dir)?;
    settings.ingest.device_credentials = Some(credentials.clone());

    let (ops_listen, drain_deadline) = (settings.ingest.ops_listen, settings.ingest.drain_deadline);
    let http = Listener::bind(&settings.ingest).await?;
    let ops = bind(ops_listen, "--ops-listen").await?;
    let shutdown = shutdown::on_signal();
    let health = Health::starting(settings.health, shutdown.clone());
    let operations = Operations::start(ops, health.clone());
    let queue = open_queue_at_start(&settings.engines, "standalone", &health)
        .await
        .with_context(|| format!("cannot use the queue at {}", settings.engines.queue))?;
    let index = open_index_at_start(&settings.engines, &health).await?;
    let logins = Arc::new(DeviceLogins::new(credentials.keys().clone(), index.index.clone()));
    let mut registry = Registry::default();
    operations::process::register(&mut registry, "standalone");
    let broker = Broker::start(settings.broker, logins, &Secret::generate(), &mut registry)?;
    let scheme = if broker.uses_tls() { "mqtts" } else { "mqtt" };
    let devices_url: MqttUrl = format!("{scheme}://{}", reachable(broker.address())).parse()?;
    let transports = Transports::from_settings(TransportSettings {
        mqtt: Some((broker.worker_url().clone(), settings.mqtt)),
        discard_latency: Duration::ZERO,
    });

    let stores = StoreMetrics::register(&mut registry, queue.clone(), index.clone());
    let interval = settings.metrics.interval;
    let dependencies = Dependencies {
        metrics: push_fanout_worker::Metrics::new(settings.metrics.apps),
        observation: Some(Observation { interval, stores: stores.clone() }),
        ..Dependencies::new(queue.clone(), index.clone(), transports.clone())
    };
    dependencies.metrics.register(&mut registry);
    transports.register(&mut registry);
    let ingest_metrics = Arc::new(push_ingest::Metrics::new(settings.metrics.apps));
    ingest_metrics.register(&mut registry);
    traces.start(&mut registry);
    operations.publish(registry);
    readiness::watch(&health, &dependencies);
    watch_disk(&health, data_dir);
    health.complete();
    let reading = CancellationToken::new();
    tokio::spawn(stores.keep_reading(interval, reading.clone()));

    let (address, scheme) = (reachable(http.local_addr()?), http.scheme());
    let ingest = push_ingest::run_with_metrics(
        settings.ingest,
        http,
        queue.clone(),
        index.clone(),
        ingest_metrics,
        shutdown.clone(),
    );
    let ingest = tokio::spawn(part("the HTTP endpoint", ingest, shutdown.clone()));
    // The worker stops after ingest, which publishes until it has answered its last request.
    let worker_stop = CancellationToken::new();
    let worker =
        push_fanout_worker::run(settings.worker, dependencies, drain_deadline, worker_stop.clone());
    let worker = tokio::spawn(part("the worker", worker, shutdown.clone()));
    info!(http = %address, mqtt = %devices_url, ops = %ops_listen, data_dir = %data_dir.display(), "standalone started");
    let demo = async {
        if args.demo {
            let (http, broker, logins) = (address, &devices_url, &credentials);
            let place = demo::Place { http, broker, data_dir, logins };
            demo::run(&index, place, &shutdown, out).await
        } else {
            out.note(format_args!(
                "ready on {scheme}://{address}, devices on {devices_url}; stop with Ctrl-C"
            ));
            shutdown.cancelled().await;
            Ok(())
        }
    };
    let demo = demo.await;
    if demo.is_err() {
        shutdown.cancel();
    }
    let ingest = ingest.await?;
    worker_stop.cancel();
    let worker = worker.await?;
    transports.close().await;
    queue.close().await;
    let saved = broker.stop().await;
    reading.cancel();
    traces.finish().await;
    operations.stop().await;
    saved.context("what waits for devices is not saved")?;
    ingest?;
    worker?;
    demo
}

/// Runs a part of the service, whose end, however it comes, stops the whole: a process that goes on
/// without its HTTP endpoint or its worker would look alive and do nothing.
///
/// # Errors
/// If the part fails, or ends before `stop`.
async fn part<E: std::error::Error + Send + Sync + 'static>(
    name: &'static str,
    work: impl Future<Output = Result<(), E>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    // Also if `work` panics.
    let _stops = stop.clone().drop_guard();
    let ended = work.await.with_context(|| format!("{name} failed"));
    if ended.is_ok() && !stop.is_cancelled() {
        bail!("{name} stopped by itself");
    }
    ended
}

/// The address for programs on this machine: loopback in place of an unspecified one.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[tokio::test]
    async fn a_part_that_ends_by_itself_stops_the_whole_and_says_so() {
        let run = async |work: Result<(), io::Error>| {
            let stop = CancellationToken::new();
            let ended = part("the worker", async { work }, stop.clone()).await;
            (stop.is_cancelled(), format!("{:#}", ended.unwrap_err()))
        };
        let (stopped, error) = run(Ok(())).await;
        assert!(stopped && error == "the worker stopped by itself", "{error}");
        let (stopped, error) = run(Err(io::Error::other("no queue"))).await;
        assert!(stopped && error == "the worker failed: no queue", "{error}");
    }

    async fn faulty() -> io::Result<()> {
        panic!("a fault of the worker")
    }

    #[tokio::test]
    async fn a_part_that_panics_stops_the_whole() {
        let stop = CancellationToken::new();
        let worker = tokio::spawn(part("the worker", faulty(), stop.clone()));
        assert!(worker.await.unwrap_err().is_panic());
        assert!(stop.is_cancelled());
    }

    #[tokio::test]
    async fn a_part_that_was_told_to_stop_ends_well() {
        let stop = CancellationToken::new();
        let asked = stop.clone();
        let work = async move {
            asked.cancelled().await;
            Ok::<_, io::Error>(())
        };
        stop.cancel();
        part("the worker", work, stop).await.unwrap();
    }
}
