//! A whole `ingest` in the test's own process, with one app, on queues and keys of its own.

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};

use clap::Parser;
use prometheus_client::registry::Registry;
use push_boot::{
    engines::Stores, proxy_protocol::ProxyArgs, settings::ConfigErrors, tune::TuneArgs,
};
use push_credentials::{DeviceCredentials, KeyFile};
use push_index::Index;
use push_ingest::{IngestArgs, Listener, Metrics, RunError, Settings};
use push_ledger::Ledger;
use push_model::{
    app::App,
    envelope::{Job, decode_job_envelope},
    ledger::Retention,
    secret::Secret,
    time::UnixMillis,
};
use push_queue::{
    Lane, Queue,
    amqp::{AmqpQueue, AmqpSettings},
};
use push_store::redis::{RedisSettings, RedisStore};
use push_test_support::client::Ingest;
pub use push_test_support::client::{APP, DEADLINE};
use push_tests::{amqp_url, eventually, namespace, redis_url};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    ingest: IngestArgs,
    #[command(flatten)]
    proxies: ProxyArgs,
    #[command(flatten)]
    tune: TuneArgs,
}

/// A running `ingest`.
#[derive(Debug)]
pub struct Service {
    /// Where it listens.
    pub address: SocketAddr,
    /// The secret of its app.
    pub secret: String,
    /// Its queue.
    pub queue: Arc<dyn Queue>,
    /// Its index.
    pub index: Arc<dyn Index>,
    /// Its ledger.
    pub ledger: Arc<dyn Ledger>,
    /// Tells it to stop.
    pub shutdown: CancellationToken,
    metrics: Registry,
    running: JoinHandle<Result<(), RunError>>,
}

impl Service {
    /// Starts ingest with these flags, on the servers of the run.
    pub async fn start(flags: &[&str]) -> Self {
        Self::start_on(&amqp_url(), &redis_url(), flags).await
    }

    /// Starts ingest with these flags, on these servers.
    pub async fn start_on(amqp: &str, redis: &str, flags: &[&str]) -> Self {
        Self::start_with(amqp, redis, settings(flags)).await
    }

    /// Starts ingest that issues MQTT logins with these keys.
    pub async fn start_with_keys(keys: Arc<KeyFile>, ttl: Duration, flags: &[&str]) -> Self {
        let credentials = Some(DeviceCredentials::new(keys, ttl));
        let settings = Settings { device_credentials: credentials, ..settings(flags) };
        Self::start_with(&amqp_url(), &redis_url(), settings).await
    }

    async fn start_with(amqp: &str, redis: &str, settings: Settings) -> Self {
        let namespace = namespace();
        let amqp_settings = AmqpSettings {
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_millis(500),
            ..AmqpSettings::default()
        };
        let queue = AmqpQueue::connect(amqp, &namespace, amqp_settings).await.unwrap();
        let store = RedisStore::connect(redis, &namespace, RedisSettings::default()).await.unwrap();
        let queue: Arc<dyn Queue> = Arc::new(queue);
        let stores = Stores::of_redis(store);
        let Stores { index, ledger, .. } = stores.clone();
        let secret = Secret::generate();
        let app = App::new(APP.parse().unwrap(), &secret, UnixMillis::now());
        assert!(index.create_app(&app).await.unwrap());

        let listener = Listener::bind(&settings).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let (mut registry, metrics) = (Registry::default(), Arc::new(Metrics::default()));
        metrics.register(&mut registry);
        let running = tokio::spawn(push_ingest::run_with_metrics(
            settings,
            listener,
            queue.clone(),
            stores,
            metrics,
            shutdown.clone(),
        ));
        let secret = secret.expose().to_owned();
        Self { address, secret, queue, index, ledger, shutdown, metrics: registry, running }
    }

    /// The value of a counter, as `/metrics` gives it.
    pub fn counter(&self, name: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a whole number")
    }

    /// Changes the app's record.
    pub async fn change_app(&self, change: impl FnOnce(&mut App)) {
        let mut app = self.index.app(&APP.parse().unwrap()).await.unwrap().unwrap();
        change(&mut app);
        assert!(self.index.update_app(&app).await.unwrap());
    }

    /// Gives the app a rate limit, in pushes per second.
    pub async fn limit_app(&self, limit: u32) {
        self.change_app(|app| app.rate_limit = NonZeroU32::new(limit)).await;
    }

    /// Everything that was published, once `n` jobs are there.
    pub async fn jobs(&self, n: usize) -> Vec<Job> {
        let mut consumer = self.queue.consume(Lane::Jobs, 1000).await.unwrap();
        let mut jobs = Vec::new();
        while jobs.len() < n {
            let delivery = timeout(DEADLINE, consumer.next()).await.expect("in time").unwrap();
            let envelope = decode_job_envelope(&delivery.payload).unwrap();
            jobs.extend(envelope.into_iter().map(|job| job.expect("a readable job")));
            delivery.ack().await.unwrap();
        }
        jobs
    }

    /// Waits until the broker says that so many messages are there.
    pub async fn wait_for_depth(&self, depth: u64) {
        eventually("the broker has the messages", DEADLINE, async || {
            match self.queue.depth(Lane::Jobs).await {
                Ok(seen) if seen == depth => Ok(()),
                seen => Err(format!("{seen:?}")),
            }
        })
        .await;
    }

    /// Tells the service to stop and waits until it has.
    pub async fn stop(self) -> Result<(), RunError> {
        self.shutdown.cancel();
        self.stopped().await
    }

    /// Waits until a service that was told to stop has.
    pub async fn stopped(self) -> Result<(), RunError> {
        let stopped = timeout(DEADLINE, self.running).await.expect("it stops").unwrap();
        self.queue.close().await;
        stopped
    }
}

impl Ingest for Service {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn secret(&self) -> &str {
        &self.secret
    }
}

fn settings(flags: &[&str]) -> Settings {
    let cli = Cli::parse_from(["ingest", "--listen=127.0.0.1:0"].iter().chain(flags));
    let mut errors = ConfigErrors::tuned(&cli.tune);
    let settings = cli.ingest.check(Some(Retention::all(Duration::from_hours(1))), &mut errors);
    let proxies = cli.proxies.check(&mut errors);
    let (mut settings, proxies) = errors.finish(settings.zip(proxies)).unwrap();
    settings.http.trusted_proxies = proxies;
    settings
}
