//! `ingest` without a broker beside it: all of its code with the real index, and a stub queue that
//! confirms after a given time and takes no processor time for that.
//!
//! On a machine of few cores the broker takes its share of them, and confirms come later because
//! programs wait for a core. This shows how much of the distance to the bare server that explains.
//!
//! It runs as a process of its own, as the bare server does.

use std::{net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use async_trait::async_trait;
use bytes::Bytes;
use clap::{Args, Parser};
use push_boot::{runtime, settings::ConfigErrors, shutdown};
use push_ingest::IngestArgs;
use push_model::ledger::Retention;
use push_queue::{Consumer, DeadLetter, Lane, Queue, QueueCounts, QueueError};
use tokio::net::TcpListener;

use crate::setup::environment::open_redis;

/// The hidden flags of the program.
#[derive(Debug, Args)]
pub(crate) struct IngestAlone {
    /// Be `ingest` with a queue that takes no processor time
    #[arg(long, hide = true, requires = "alone_index", requires = "alone_confirm")]
    ingest_alone: Option<SocketAddr>,
    /// The index: a Redis and the prefix of its keys
    #[arg(long, hide = true, num_args = 2)]
    alone_index: Option<Vec<String>>,
    /// Duration of a confirm, in microseconds
    #[arg(long, hide = true)]
    alone_confirm: Option<u64>,
}

/// The flags of the program at `address`.
pub(crate) fn flags(address: &str, redis: &str, namespace: &str, confirm: Duration) -> Vec<String> {
    let confirm = confirm.as_micros().to_string();
    let flags =
        ["--ingest-alone", address, "--alone-index", redis, namespace, "--alone-confirm", &confirm];
    flags.map(str::to_owned).into()
}

impl IngestAlone {
    /// Runs the program if the flags ask for it.
    pub(crate) fn run(&self) -> Option<anyhow::Result<ExitCode>> {
        let (address, index) = self.ingest_alone.zip(self.alone_index.as_deref())?;
        let ([redis, namespace], Some(confirm)) = (index, self.alone_confirm) else { return None };
        let serve = serve(address, redis, namespace, Duration::from_micros(confirm));
        let runtime = runtime::start(runtime::default_threads());
        Some(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(serve)))
    }
}

async fn serve(
    address: SocketAddr,
    redis: &str,
    namespace: &str,
    confirm: Duration,
) -> anyhow::Result<ExitCode> {
    #[derive(Parser)]
    struct Defaults {
        #[command(flatten)]
        ingest: IngestArgs,
    }
    let mut errors = ConfigErrors::default();
    let retention = Some(Retention::all(Duration::from_secs(3600)));
    let settings = Defaults::parse_from(["ingest"]).ingest.check(retention, &mut errors);
    let settings = settings.context("the default settings are wrong")?;
    let index = open_redis(redis, namespace).await?;
    let listener = TcpListener::bind(address).await?;
    let queue = Arc::new(StubQueue { confirm });
    push_ingest::run(settings, listener, queue, index, shutdown::on_signal()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Confirms publishes after a fixed time and stores nothing. The other operations fail.
#[derive(Debug)]
struct StubQueue {
    confirm: Duration,
}

#[async_trait]
impl Queue for StubQueue {
    async fn publish(&self, _: Lane, _: Bytes) -> Result<(), QueueError> {
        let confirm = self.confirm;
        let confirmed = tokio::task::spawn_blocking(move || wait(confirm)).await;
        confirmed.map_err(|error| QueueError::Unavailable(error.into()))
    }

    async fn publish_later(&self, _: Lane, _: Bytes, _: Duration) -> Result<(), QueueError> {
        Err(QueueError::Closed)
    }

    async fn publish_dead(&self, _: Lane, _: Bytes, _: &str) -> Result<(), QueueError> {
        Err(QueueError::Closed)
    }

    async fn consume(&self, _: Lane, _: u16) -> Result<Box<dyn Consumer>, QueueError> {
        Err(QueueError::Closed)
    }

    async fn depth(&self, _: Lane) -> Result<u64, QueueError> {
        Err(QueueError::Closed)
    }

    async fn counts(&self) -> Result<QueueCounts, QueueError> {
        Err(QueueError::Closed)
    }

    async fn visit_dead(
        &self,
        _: &mut (dyn FnMut(DeadLetter) -> bool + Send),
    ) -> Result<(), QueueError> {
        Err(QueueError::Closed)
    }

    async fn replay_dead(&self, _: Option<&[String]>) -> Result<u64, QueueError> {
        Err(QueueError::Closed)
    }

    async fn drop_dead(&self, _: Option<&[String]>) -> Result<u64, QueueError> {
        Err(QueueError::Closed)
    }

    async fn ping(&self) -> Result<(), QueueError> {
        Ok(())
    }

    async fn describe(&self) -> Result<String, QueueError> {
        Ok("a queue that keeps nothing".to_owned())
    }

    async fn close(&self) {}
}

#[allow(clippy::disallowed_methods, reason = "the runtime's clock has steps of a millisecond")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}
