//! The start, the run and the stop of a program: the same for `ingest`, `fanout-worker`,
//! `pushctl standalone` and `pushctl broker`.
//!
//! 1. [`Program::begin`] sets up log and traces, and raises the limit of open files.
//! 2. [`Program::start`] opens the operations listener and watches for signals. From here on
//!    `/livez` answers, and `/readyz` names what the start waits for.
//! 3. With [`Start`] the program opens its engines, registers its metrics and watches its parts.
//! 4. [`Start::announce`] makes the program known in the index.
//! 5. [`Start::complete`] publishes the metrics; `/readyz` succeeds as soon as all parts work.
//! 6. [`Service`] runs until a signal, or until one of its parts ends by itself. Then it stops
//!    everything in the order of [`Stage`], and last the record in the index, the traces and the
//!    operations listener.
//!
//! `stop` has the stages and `shutdown` the signals; `runtime`, `descriptors`, `data_dir` and
//! `allocator` are the threads, files and memory of the process; `settings` are its flags.

#[cfg(target_env = "musl")]
mod allocator;
pub mod data_dir;
pub mod descriptors;
pub mod runtime;
mod settings;
pub mod shutdown;
mod stop;

use std::{fmt, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Parser;
use prometheus_client::registry::Registry;
use push_index::Index;
use push_queue::Queue;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use self::{descriptors::Descriptors, stop::Steps};
pub use self::{
    settings::{ProgramArgs, ProgramSettings},
    stop::Stage,
};
use crate::{
    engines::{EngineSettings, Stores, UnusableStore, open_queue_at_start, open_stores_at_start},
    health::{Health, HealthSettings},
    log,
    metrics::{self, MetricsSettings, StoreMetrics},
    network,
    operations::Operations,
    presence::{Announcement, Presence, PresenceSettings},
    settings::command_line,
    traces::Traces,
};

/// Reads the command line, runs the program, and reports on standard error why it failed.
pub fn main<C: Parser>(run: impl FnOnce(C) -> anyhow::Result<()>) -> ExitCode {
    match run(command_line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => log::failed(&format!("{error:#}")),
    }
}

/// A program whose settings are checked.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    traces: Traces,
    health: HealthSettings,
    presence: PresenceSettings,
    descriptors: Descriptors,
}

impl Program {
    /// Sets up the log and the traces of this process, and raises its limit of open files.
    pub fn begin(name: &'static str, settings: ProgramSettings) -> Self {
        let ProgramSettings { log, traces, health, presence } = settings;
        let traces = Traces::new(traces, name);
        log::init(log, &traces);
        Self { name, traces, health, presence, descriptors: descriptors::raise() }
    }

    /// Returns true if requests may be traced.
    pub fn is_traced(&self) -> bool {
        self.traces.is_on()
    }

    /// The file descriptors that the process may have.
    pub fn descriptors(&self) -> Descriptors {
        self.descriptors
    }

    /// Serves the operations paths on this address, and watches for signals.
    ///
    /// Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub async fn start(self, ops_listen: SocketAddr) -> anyhow::Result<Start> {
        let listener = network::bind(ops_listen, "--ops-listen").await?;
        let ops_address = listener.local_addr()?;
        let shutdown = shutdown::on_signal();
        let health = Health::starting(self.health, shutdown.clone());
        let operations = Operations::start(listener, health.clone());
        let mut registry = Registry::default();
        metrics::process::register(&mut registry, self.name);
        let service = Service {
            name: self.name,
            ops_address,
            shutdown,
            steps: Steps::default(),
            reading: CancellationToken::new(),
            traces: self.traces,
            presence: None,
            operations,
        };
        Ok(Start { registry, health, stores: None, presence: self.presence, service })
    }
}

/// A program that starts: it has no parts yet.
#[derive(Debug)]
pub struct Start {
    /// The metrics that the program publishes.
    pub registry: Registry,
    /// The parts that `/readyz` names.
    pub health: Health,
    stores: Option<(Arc<StoreMetrics>, Duration)>,
    presence: PresenceSettings,
    service: Service,
}

/// The open engines of a program.
#[derive(Debug)]
pub struct Engines {
    /// The queue, which is closed in its stage of the stop.
    pub queue: Arc<dyn Queue>,
    /// The index, and the ledger.
    pub stores: Stores,
    /// The metrics of queue and stores, read from when the start is complete.
    pub metrics: Arc<StoreMetrics>,
}

impl Start {
    /// Opens the queue and the index; waits for servers that cannot be reached yet. Their metrics are
    /// added to those of the program.
    ///
    /// # Errors
    /// If one of them cannot be used within `--tune start-deadline`, or at all.
    pub async fn open_engines(
        &mut self,
        engines: &EngineSettings,
        metrics: MetricsSettings,
    ) -> anyhow::Result<Engines> {
        let queue = open_queue_at_start(engines, self.service.name, &self.health)
            .await
            .with_context(|| format!("cannot use the queue at {}", engines.queue))?;
        let stores = self.open_stores(engines).await?;
        let read = StoreMetrics::register(&mut self.registry, queue.clone(), stores.clone());
        self.stores = Some((read.clone(), metrics.interval));
        let closing = queue.clone();
        self.service.close(Stage::Queue, async move {
            closing.close().await;
            Ok(())
        });
        Ok(Engines { queue, stores, metrics: read })
    }

    /// Opens index and ledger alone; waits for servers that cannot be reached yet.
    ///
    /// # Errors
    /// If one of them cannot be used within `--tune start-deadline`, or at all.
    pub async fn open_stores(&self, engines: &EngineSettings) -> Result<Stores, UnusableStore> {
        open_stores_at_start(engines, &self.health).await
    }

    /// Makes the program known in the index, until it has stopped.
    pub fn announce(&mut self, index: Arc<dyn Index>, mut announcement: Announcement) {
        let Service { name, ops_address, .. } = self.service;
        announcement.listens.push(("ops", ops_address));
        let health = self.health.clone();
        let presence = Presence::begin(name, announcement, index, health, self.presence);
        self.service.presence = Some(presence);
    }

    /// The address of the operations listener, with the actual port if the setting says 0.
    pub fn ops_address(&self) -> SocketAddr {
        self.service.ops_address
    }

    /// Publishes the metrics. From now on the program is ready while its parts work.
    pub fn complete(self) -> Service {
        let Self { mut registry, health, stores, presence: _, mut service } = self;
        service.traces.start(&mut registry);
        service.operations.publish(registry);
        health.complete();
        if let Some((stores, interval)) = stores {
            tokio::spawn(stores.keep_reading(interval, service.reading.clone()));
        }
        service
    }
}

/// A running program.
pub struct Service {
    name: &'static str,
    ops_address: SocketAddr,
    shutdown: CancellationToken,
    steps: Steps,
    /// Ends the reading of what the stores hold.
    reading: CancellationToken,
    traces: Traces,
    presence: Option<Presence>,
    operations: Operations,
}

impl Service {
    /// Cancelled when the program is to stop.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Runs a part of the program, which ends when the token that it is given is cancelled. If it ends
    /// by itself, the program stops with an error.
    pub fn run<F, E>(
        &mut self,
        stage: Stage,
        name: &'static str,
        work: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<anyhow::Error> + Send + 'static,
    {
        let stop = match stage {
            Stage::Requests => self.shutdown.clone(),
            _ => CancellationToken::new(),
        };
        let work = stop::watched(name, work(stop.clone()), self.shutdown.clone());
        self.steps.part(stage, name, stop, work);
    }

    /// Adds what is to be closed in this stage of the stop.
    pub fn close(
        &mut self,
        stage: Stage,
        closing: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.steps.close(stage, closing);
    }

    /// Waits until the program is to stop, and stops it.
    ///
    /// # Errors
    /// If a part failed, or could not be stopped in order.
    pub async fn until_stopped(self) -> anyhow::Result<()> {
        let shutdown = self.shutdown.clone();
        self.beside(async move {
            shutdown.cancelled().await;
            Ok(())
        })
        .await
    }

    /// Runs work in the foreground beside the parts. Its end stops the program.
    ///
    /// # Errors
    /// If the work or a part failed, or a part could not be stopped in order.
    pub async fn beside(
        self,
        foreground: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let ended = foreground.await;
        self.shutdown.cancel();
        let failures = self.steps.stop().await;
        self.reading.cancel();
        if let Some(presence) = self.presence {
            presence.end().await;
        }
        self.traces.finish().await;
        self.operations.stop().await;
        info!("{} stopped", self.name);
        let mut failures = failures.into_iter().chain(ended.err());
        let first = failures.next();
        for other in failures {
            error!(
                runbook = "the-log-tells-of-a-fault",
                error = format!("{other:#}"),
                "a part of the program failed, too"
            );
        }
        first.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}
