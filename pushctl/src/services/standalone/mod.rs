//! `pushctl standalone`: the whole service in one process.
//!
//! HTTP endpoint, worker, MQTT broker for the devices, and the embedded engines of queue and index
//! in one data directory. It runs the same code as the separate programs, with other engines. Every
//! address is bound before anything is served, so that a port that is taken fails the start with one
//! clear error.

mod demo;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use push_boot::{
    credentials::CredentialSettings,
    data_dir,
    engines::EngineSettings,
    health::watch_disk,
    log,
    metrics::MetricsSettings,
    network::bind,
    presence::Announcement,
    program::{Program, ProgramArgs, ProgramSettings, Stage},
    proxy_protocol::ProxyArgs,
    seal::SealSettings,
    settings::ConfigErrors,
};
use push_broker::{
    Broker, BrokerArgs, BrokerSettings, DeviceLogins, LoginLogSettings, WEBSOCKET_PATH,
};
use push_console::{Console, ConsoleArgs, ConsoleSettings, Mqtt, PageParts};
use push_fanout_worker::{Dependencies, WorkerArgs, WorkerSettings, readiness};
use push_ingest::{IngestArgs, Listener, Settings as IngestSettings};
use push_model::{secret::Secret, time::UnixMillis};
use push_mqtt::MqttUrl;
use push_operator::app::trial::Providers;
use push_transports::{
    TransportSettings, Transports,
    http::{HttpArgs, HttpSettings, StoredProviders},
    mqtt::MqttSettings,
};
use tracing::info;

use crate::output::Output;

/// The default of `--log` in a demo: log lines would bury its output.
const DEMO_LOG: &str = "warn";

/// Flags of `standalone`.
#[derive(Debug, clap::Args)]
pub struct StandaloneArgs {
    /// Make a demo app with devices that listen, push to them, and show which received what. Both listeners
    /// may be unencrypted then
    #[arg(long)]
    demo: bool,
    #[command(flatten)]
    broker: BrokerArgs,
    #[command(flatten)]
    ingest: IngestArgs,
    #[command(flatten)]
    console: ConsoleArgs,
    #[command(flatten)]
    proxies: ProxyArgs,
    #[command(flatten)]
    worker: WorkerArgs,
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    program: ProgramArgs,
}

/// Checked flags.
struct Settings {
    broker: BrokerSettings,
    ingest: IngestSettings,
    console: Option<ConsoleSettings>,
    worker: WorkerSettings,
    mqtt: MqttSettings,
    http: HttpSettings,
    program: ProgramSettings,
    metrics: MetricsSettings,
    engines: EngineSettings,
    credentials: (CredentialSettings, SealSettings),
}

impl StandaloneArgs {
    fn check(
        &self,
        engines: Option<EngineSettings>,
        credentials: Option<(CredentialSettings, SealSettings)>,
        mut errors: ConfigErrors,
    ) -> Result<Settings, ConfigErrors> {
        let broker = self.broker.check(&mut errors);
        if self.demo && broker.as_ref().is_some_and(|broker| broker.tls.is_some()) {
            errors.note(
                "--demo: its devices trust no private certificate: leave out --mqtt-tls-cert and \
                 --mqtt-tls-key",
            );
        }
        let default_log = if self.demo { DEMO_LOG } else { log::DEFAULT_FILTER };
        let retention = engines.as_ref().map(|engines| engines.ledger_retention);
        let ingest = self.ingest.check(retention, &mut errors);
        if self.demo && ingest.as_ref().is_some_and(|ingest| ingest.tls.is_some()) {
            errors.note("--demo pushes without TLS: leave out --tls-cert and --tls-key with it");
        }
        let console = self.console.check(&mut errors);
        let proxies = self.proxies.check(&mut errors);
        let worker = self.worker.check(retention, &mut errors);
        let mqtt = MqttSettings::read(errors.tuning());
        let http = self.http.check(&mut errors);
        let namespace = engines.as_ref().map(|engines| &*engines.namespace);
        let program = self.program.check(default_log, namespace, &mut errors);
        let settings = (|| {
            let (mut broker, mut ingest, proxies) = (broker?, ingest?, proxies?);
            let console = console?.map(|console| console.behind(&proxies));
            let (program, metrics) = program?;
            (broker.trusted_proxies, ingest.http.trusted_proxies) = (proxies.clone(), proxies);
            Some(Settings {
                broker,
                ingest,
                console,
                worker: worker?,
                mqtt,
                http: http?,
                program,
                metrics,
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
    mut args: StandaloneArgs,
    engines: Option<EngineSettings>,
    credentials: Option<(CredentialSettings, SealSettings)>,
    errors: ConfigErrors,
    data_dir: &Path,
    out: Output,
) -> anyhow::Result<()> {
    if args.demo {
        args.ingest.default_to_in_clear();
        args.broker.default_to_in_clear();
    }
    let mut settings = args.check(engines, credentials, errors)?;
    let program = Program::begin("standalone", settings.program);
    settings.ingest.is_traced = program.is_traced();
    // Backends and devices have half each.
    let descriptors = program.descriptors().half();
    settings.ingest.http.fit(descriptors);
    settings.broker.fit(descriptors);
    // Before anything is made: a start that fails because an address is taken leaves nothing behind.
    let http = Listener::bind(&settings.ingest).await?;
    drop(bind(settings.broker.listen, "--mqtt-listen").await?);
    let admin = match &settings.console {
        Some(console) => Some(push_console::Listener::bind(console).await?),
        None => None,
    };
    let mut start = program.start(settings.ingest.ops_listen).await?;
    data_dir::make(data_dir)?;
    settings.broker.save_in(data_dir);
    let interval = settings.ingest.apps.activity_interval;
    settings.broker.login_log = LoginLogSettings { program: "standalone", interval };
    let (credentials, seal) = settings.credentials;
    let (device_url, websocket_url) = (credentials.url.clone(), credentials.websocket_url.clone());
    let credentials = credentials.open_or_create_in(data_dir)?;
    let seal = seal.open_or_create_in(data_dir)?;

    let opened = start.open_engines(&settings.engines, settings.metrics).await?;
    let (queue, stores) = (opened.queue.clone(), opened.stores.clone());
    let logins = Arc::new(DeviceLogins::new(credentials.keys().clone(), stores.index.clone()));
    let password = Secret::generate();
    let broker = Broker::start(settings.broker, logins, &password, &mut start.registry)?;
    let scheme = if broker.uses_tls() { "mqtts" } else { "mqtt" };
    let devices_url: MqttUrl = format!("{scheme}://{}", reachable(broker.address())).parse()?;
    let told = (!broker.address().ip().is_unspecified()).then(|| devices_url.to_string());
    let of_pages = broker.websocket_address().filter(|address| !address.ip().is_unspecified());
    let scheme = if broker.uses_tls() { "wss" } else { "ws" };
    let websocket_url =
        websocket_url.or_else(|| Some(format!("{scheme}://{}{WEBSOCKET_PATH}", of_pages?)));
    let credentials = credentials
        .with_url(device_url.or(told).as_deref())
        .with_websocket_url(websocket_url.as_deref());
    settings.ingest.device_credentials = Some(credentials.clone());
    let clock = Arc::new(UnixMillis::now);
    let console = push_console::Parts {
        program: "standalone",
        queue: queue.clone(),
        stores: stores.clone(),
        retention: settings.engines.ledger_retention,
        seal: Some(seal.clone()),
        providers: Providers::open(settings.http.clone())?,
        health: start.health.clone(),
    };
    let providers = StoredProviders::new(stores.index.clone(), Some(seal), clock);
    let transports = TransportSettings {
        mqtt: Some((broker.worker_url().clone(), settings.mqtt)),
        http: settings.http,
        discard_latency: Duration::ZERO,
    };
    let transports = Transports::from_settings(transports, Arc::new(providers))?;
    transports.register(&mut start.registry);
    let dependencies = Dependencies::observed(&opened, transports.clone(), settings.metrics);
    dependencies.metrics.register(&mut start.registry);
    let metrics = Arc::new(push_ingest::Metrics::new(settings.metrics.apps));
    metrics.register(&mut start.registry);
    readiness::watch(&start.health, &dependencies);
    watch_disk(&start.health, data_dir);
    let (accepted, sent) = (metrics.clone(), dependencies.metrics.clone());
    let announcement = Announcement {
        listens: vec![("http", http.local_addr()?), ("mqtt", broker.address())],
        ingest: Some(Box::new(move || accepted.counts())),
        worker: Some(Box::new(move || sent.counts())),
    };
    start.announce(stores.index.clone(), announcement);

    let (address, scheme) = (reachable(http.local_addr()?), http.scheme());
    let pages = PageParts {
        ingest: settings.ingest.clone(),
        ingest_url: format!("{scheme}://{address}"),
        mqtt: Some(Mqtt {
            logins: credentials.clone(),
            websockets: Some(broker.websockets().clone()),
        }),
    };
    let (ops, dir) = (start.ops_address(), data_dir.display());
    info!(http = %address, mqtt = %devices_url, %ops, data_dir = %dir, "standalone started");
    let mut service = start.complete();
    let drain_deadline = settings.ingest.drain_deadline;
    service.run(Stage::Requests, "the HTTP endpoint", |stop| {
        push_ingest::run_with_metrics(settings.ingest, http, queue, stores, metrics, stop)
    });
    let mut link = None;
    if let Some(listener) = admin {
        let console = Console::new(listener, console, pages)?;
        link = Some(console.sign_in_link()?);
        service.run(Stage::Requests, "the console", |stop| console.run(stop));
    }
    service.run(Stage::Deliveries, "the worker", |stop| {
        push_fanout_worker::run(settings.worker, dependencies, drain_deadline, stop)
    });
    service.close(Stage::Transports, async move {
        transports.close().await;
        Ok(())
    });
    service.close(Stage::Broker, async {
        broker.stop().await.context("what waits for devices is not saved")
    });
    if args.demo {
        let place =
            demo::Place { http: address, broker: &devices_url, data_dir, logins: &credentials };
        let shutdown = service.shutdown().clone();
        let link = link.as_deref();
        return service.beside(demo::run(&opened.stores, place, link, &shutdown, out)).await;
    }
    out.note(format_args!(
        "ready on {scheme}://{address}, devices on {devices_url}; stop with Ctrl-C"
    ));
    if let Some(link) = link {
        out.note(format_args!("see it in a browser, signed in (the link works once): {link}"));
    }
    service.until_stopped().await
}

/// Returns the address for programs on this machine: loopback in place of an unspecified address.
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
