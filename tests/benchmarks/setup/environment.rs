//! The environment of a run: private servers, and apps that are loaded once.
//!
//! Servers are started and apps are loaded on first use, so that a benchmark that is run alone
//! starts only what it needs. Each app has a Redis of its own, so that its memory can be measured.

use std::{path::Path, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use lapin::{Connection, ConnectionProperties, options::QueuePurgeOptions};
use push_boot::engines::{EngineSettings, EngineTimeouts, IndexUrl, QueueUrl, Stores, open_stores};
use push_index::Index;
use push_model::ledger::Retention;
use push_tests::{
    servers::{Mosquitto, RabbitMq, Redis, ServerError},
    service::built,
    stack::{APP, Servers, Stack},
};
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::{
    process::Command,
    sync::OnceCell,
    time::{Instant, timeout},
};

use super::{population, sizes::Sizes};
use crate::{load::Producer, measure::memory::used_memory};

/// The deadline of the largest import.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(1800);

/// The servers and apps of one run.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) sizes: Sizes,
    rabbitmq: OnceCell<RabbitMq>,
    mosquitto: OnceCell<Mosquitto>,
    empty: OnceCell<LoadedApp>,
    small: OnceCell<LoadedApp>,
    big: OnceCell<LoadedApp>,
}

/// An app with its devices in a Redis of its own, and a running `ingest`.
#[derive(Debug)]
pub(crate) struct LoadedApp {
    pub(crate) redis: Redis,
    pub(crate) stack: Stack,
    pub(crate) size: usize,
    /// Duration of the import, from the start of `pushctl` to its end.
    pub(crate) import: Duration,
    /// Memory that Redis uses for the devices, in bytes.
    pub(crate) memory: u64,
}

impl Environment {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let (rabbitmq, mosquitto) = (OnceCell::new(), OnceCell::new());
        let (empty, small, big) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { sizes, rabbitmq, mosquitto, empty, small, big }
    }

    pub(crate) async fn amqp_url(&self) -> Result<String, ServerError> {
        Ok(self.rabbitmq.get_or_try_init(RabbitMq::start_to_measure).await?.url())
    }

    pub(crate) async fn rabbitmq_pid(&self) -> Result<u32, ServerError> {
        Ok(self.rabbitmq.get_or_try_init(RabbitMq::start_to_measure).await?.id())
    }

    pub(crate) async fn mqtt_url(&self) -> Result<String, ServerError> {
        Ok(self.mosquitto.get_or_try_init(Mosquitto::start).await?.url())
    }

    /// An app without devices.
    pub(crate) async fn empty_app(&self) -> anyhow::Result<&LoadedApp> {
        self.empty.get_or_try_init(|| self.load(0, "mqtt")).await
    }

    /// The app with MQTT devices.
    pub(crate) async fn small_app(&self) -> anyhow::Result<&LoadedApp> {
        self.small.get_or_try_init(|| self.load(self.sizes.small, "mqtt")).await
    }

    /// The app with many devices, all discarded.
    pub(crate) async fn big_app(&self) -> anyhow::Result<&LoadedApp> {
        self.big.get_or_try_init(|| self.load(self.sizes.big, "discard")).await
    }

    /// Loads an app with `size` devices. Its Redis ends when it is dropped.
    pub(crate) async fn load(
        &self,
        size: usize,
        transport: &'static str,
    ) -> anyhow::Result<LoadedApp> {
        let redis = Redis::start().await?;
        let (amqp, mqtt) = (self.amqp_url().await?, self.mqtt_url().await?);
        let stack = Stack::start(Servers { amqp, redis: redis.url(), mqtt }).await;
        let before = used_memory(&redis).await?;
        let import = import(&stack, APP, size, transport).await?;
        let memory = used_memory(&redis).await?.saturating_sub(before);
        Ok(LoadedApp { redis, stack, size, import, memory })
    }
}

impl LoadedApp {
    pub(crate) fn producer(&self) -> Producer {
        Producer::of(&self.stack)
    }

    /// The index as workers open it.
    pub(crate) async fn index(&self) -> anyhow::Result<Arc<dyn Index>> {
        Ok(open_redis(&self.redis.url(), &self.stack.namespace).await?.index)
    }

    /// Makes another app in the same Redis, with `size` devices on the transport `discard`.
    pub(crate) async fn add_app(&self, app: &str, size: usize) -> anyhow::Result<Producer> {
        let made = self.stack.pushctl(&["app", "create", app, "--json"]).await;
        let made: Value = serde_json::from_str(&made)?;
        let secret = made["secret"].as_str().context("no secret")?.to_owned();
        import(&self.stack, app, size, "discard").await?;
        Ok(Producer { app: app.to_owned(), secret, ..self.producer() })
    }
}

pub(crate) async fn open_redis(url: &str, namespace: &str) -> anyhow::Result<Stores> {
    let limit = Duration::from_secs(10);
    let urls = EngineSettings {
        queue: QueueUrl::Sqlite("unused".into()),
        queue_tls: None,
        index: IndexUrl::Redis(url.to_owned().into()),
        index_tls: None,
        namespace: namespace.to_owned(),
        ledger: None,
        ledger_retention: Retention::all(Duration::from_secs(3600)),
        max_app_topics: push_index::MAX_APP_TOPICS,
        timeouts: EngineTimeouts { connect: limit, queue: limit, index: limit, heartbeat: limit },
    };
    Ok(open_stores(&urls).await?)
}

/// Imports the first `size` devices of the population, and returns how long that took.
pub(crate) async fn import(
    stack: &Stack,
    app: &str,
    size: usize,
    transport: &'static str,
) -> anyhow::Result<Duration> {
    if size == 0 {
        return Ok(Duration::ZERO);
    }
    let file = NamedTempFile::new()?;
    let path = file.path().to_owned();
    tokio::task::spawn_blocking(move || population::write(&path, size, transport)).await??;
    import_file(stack, app, size, file.path()).await
}

/// Imports so many devices from a file, and returns how long that took.
pub(crate) async fn import_file(
    stack: &Stack,
    app: &str,
    size: usize,
    file: &Path,
) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let output = Command::new(built("pushctl"))
        .args(stack.engines())
        .args(["device", "import", app, "--json"])
        .arg(file)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(IMPORT_TIMEOUT, output).await.context("the import takes too long")??;
    let took = started.elapsed();
    if !output.status.success() {
        bail!("import: {}", String::from_utf8_lossy(&output.stderr));
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(report["created"] == size, "{size} devices, but {report}");
    Ok(took)
}

/// Empties the job lane, which nothing consumes while no worker runs.
pub(crate) async fn purge_jobs(amqp: &str, stack: &Stack) -> anyhow::Result<()> {
    let connection = Connection::connect(amqp, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    let queue = format!("{}.jobs", stack.namespace);
    channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await?;
    connection.close(200, "done".into()).await?;
    Ok(())
}
