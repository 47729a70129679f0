//! What benchmarks share: servers that are private to the run, and apps that are loaded once.
//!
//! Everything is made when it is first asked for, so that one benchmark alone starts no more than
//! it needs. Each app has a Redis of its own, so that memory is counted for it alone.

use std::{path::Path, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use push_index::Index;
use push_model::ledger::Retention;
use push_service::engines::{EngineTimeouts, EngineUrls, IndexUrl, QueueUrl, open_index};
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

use crate::{crowd, load::Producer, sizes::Sizes};

/// The largest import takes less.
const IMPORT: Duration = Duration::from_secs(1800);

/// The servers and apps of one run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) sizes: Sizes,
    rabbitmq: OnceCell<RabbitMq>,
    mosquitto: OnceCell<Mosquitto>,
    empty: OnceCell<Crowd>,
    small: OnceCell<Crowd>,
    big: OnceCell<Crowd>,
}

/// An app with its devices, and a running `ingest`.
#[derive(Debug)]
pub(crate) struct Crowd {
    pub(crate) redis: Redis,
    pub(crate) stack: Stack,
    pub(crate) size: usize,
    /// What the import took, from the start of `pushctl` to its end.
    pub(crate) import: Duration,
    /// Memory that Redis uses for the devices, in bytes.
    pub(crate) memory: u64,
}

impl World {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let (rabbitmq, mosquitto) = (OnceCell::new(), OnceCell::new());
        let (empty, small, big) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { sizes, rabbitmq, mosquitto, empty, small, big }
    }

    /// The URL of RabbitMQ.
    pub(crate) async fn amqp(&self) -> Result<String, ServerError> {
        Ok(self.rabbitmq.get_or_try_init(RabbitMq::start_to_measure).await?.url())
    }

    /// The process id of RabbitMQ.
    pub(crate) async fn rabbitmq(&self) -> Result<u32, ServerError> {
        Ok(self.rabbitmq.get_or_try_init(RabbitMq::start_to_measure).await?.id())
    }

    /// The URL of Mosquitto.
    pub(crate) async fn mqtt(&self) -> Result<String, ServerError> {
        Ok(self.mosquitto.get_or_try_init(Mosquitto::start).await?.url())
    }

    /// An app without devices.
    pub(crate) async fn empty(&self) -> anyhow::Result<&Crowd> {
        self.empty.get_or_try_init(|| self.load(0, "mqtt")).await
    }

    /// The app with MQTT devices.
    pub(crate) async fn small(&self) -> anyhow::Result<&Crowd> {
        self.small.get_or_try_init(|| self.load(self.sizes.small, "mqtt")).await
    }

    /// The app with many devices, all discarded.
    pub(crate) async fn big(&self) -> anyhow::Result<&Crowd> {
        self.big.get_or_try_init(|| self.load(self.sizes.big, "discard")).await
    }

    /// An app with so many devices on a Redis of its own, which ends with it.
    pub(crate) async fn load(&self, size: usize, transport: &'static str) -> anyhow::Result<Crowd> {
        let redis = Redis::start().await?;
        let (amqp, mqtt) = (self.amqp().await?, self.mqtt().await?);
        let stack = Stack::start(Servers { amqp, redis: redis.url(), mqtt }).await;
        let before = used_memory(&redis).await?;
        let import = import(&stack, APP, size, transport).await?;
        let memory = used_memory(&redis).await?.saturating_sub(before);
        Ok(Crowd { redis, stack, size, import, memory })
    }
}

impl Crowd {
    pub(crate) fn producer(&self) -> Producer {
        Producer::of(&self.stack)
    }

    /// The index as workers open it.
    pub(crate) async fn index(&self) -> anyhow::Result<Arc<dyn Index>> {
        open_redis(&self.redis.url(), &self.stack.namespace).await
    }

    /// Makes another app with so many devices that are discarded.
    pub(crate) async fn add_app(&self, app: &str, size: usize) -> anyhow::Result<Producer> {
        let made = self.stack.pushctl(&["app", "create", app, "--json"]).await;
        let made: Value = serde_json::from_str(&made)?;
        let secret = made["secret"].as_str().context("no secret")?.to_owned();
        import(&self.stack, app, size, "discard").await?;
        Ok(Producer { app: app.to_owned(), secret, ..self.producer() })
    }
}

/// An index in a Redis.
pub(crate) async fn open_redis(url: &str, namespace: &str) -> anyhow::Result<Arc<dyn Index>> {
    open_engine(IndexUrl::Redis(url.to_owned()), namespace).await
}

/// An index.
pub(crate) async fn open_engine(
    index: IndexUrl,
    namespace: &str,
) -> anyhow::Result<Arc<dyn Index>> {
    let limit = Duration::from_secs(10);
    let urls = EngineUrls {
        queue: QueueUrl::Sqlite("unused".into()),
        index,
        namespace: namespace.to_owned(),
        ledger: None,
        ledger_retention: Retention::all(Duration::from_secs(3600)),
        timeouts: EngineTimeouts { connect: limit, queue: limit, index: limit, heartbeat: limit },
    };
    Ok(open_index(&urls).await?)
}

/// Imports the first `size` devices of the crowd, and gives the time that took.
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
    tokio::task::spawn_blocking(move || crowd::write(&path, size, transport)).await??;
    import_file(stack, app, size, file.path()).await
}

async fn import_file(
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
    let output = timeout(IMPORT, output).await.context("the import takes too long")??;
    let took = started.elapsed();
    if !output.status.success() {
        bail!("import: {}", String::from_utf8_lossy(&output.stderr));
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(report["created"] == size, "{size} devices, but {report}");
    Ok(took)
}

/// Bytes that Redis has allocated for its data.
pub(crate) async fn used_memory(redis: &Redis) -> anyhow::Result<u64> {
    let client = redis::Client::open(redis.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let info: redis::InfoDict =
        redis::cmd("INFO").arg("memory").query_async(&mut connection).await?;
    info.get("used_memory").context("Redis does not tell its memory")
}

/// The most memory that a process ever had resident, in megabytes; none where the system does
/// not tell.
pub(crate) fn peak_memory(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes / 1000.0 * 1.024)
}
