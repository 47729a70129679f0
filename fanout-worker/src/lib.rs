//! The fan-out worker: takes accepted pushes from the queue, finds the devices they mean, and
//! delivers.
//!
//! [`run`] is the whole service; `main` and `pushctl standalone` differ only in what they hand
//! it.

mod consume;
mod consuming;
mod core;
mod in_work;
mod jobs;
mod metrics;
mod paces;
mod patience;
pub mod plan;
pub mod progress;
pub mod ready;
mod retry;
mod right_of_way;
mod settings;
mod settle;
mod strand;
mod tasks;
pub mod transport;
mod transports;
pub mod verdict;

use std::{sync::Arc, time::Duration};

use push_shared::{
    index::Index,
    queue::{Lane, Queue, QueueError},
    time::UnixMillis,
};
use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

pub use crate::{
    consuming::Consuming,
    core::{Clock, PlanLimits, Random},
    metrics::Metrics,
    patience::Patience,
    right_of_way::BulkLimits,
    settings::{
        MqttArgs, MqttTuningArgs, ProcessArgs, ProcessSettings, WorkerArgs, WorkerSettings,
    },
    strand::TurnLimits,
    transports::Transports,
};
use crate::{core::Core, in_work::InWork, paces::Paces, right_of_way::RightOfWay};

/// Why a worker ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The queue cannot be consumed, and trying again is pointless.
    #[error("cannot consume the queue")]
    Queue(#[from] QueueError),
}

/// What a worker works with.
#[derive(Clone)]
pub struct Parts {
    /// Where messages come from.
    pub queue: Arc<dyn Queue>,
    /// Where devices and the ledger are.
    pub index: Arc<dyn Index>,
    /// How devices are reached.
    pub transports: Transports,
    /// What is counted.
    pub metrics: Metrics,
    /// Which lanes it consumes.
    pub consuming: Consuming,
    /// Where the time comes from.
    pub clock: Clock,
    /// Where randomness comes from.
    pub random: Random,
}

impl Parts {
    /// Parts with the system's clock and randomness.
    pub fn new(queue: Arc<dyn Queue>, index: Arc<dyn Index>, transports: Transports) -> Self {
        Self {
            queue,
            index,
            transports,
            metrics: Metrics::default(),
            consuming: Consuming::default(),
            clock: Arc::new(UnixMillis::now),
            random: Arc::new(rand::random::<u64>),
        }
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("queue", &self.queue)
            .field("index", &self.index)
            .field("transports", &self.transports)
            .finish_non_exhaustive()
    }
}

/// Runs a worker until `shutdown`, then drains: takes nothing more, finishes the batches in
/// work, saves their checkpoints, gives back what is not done. What is still running after
/// `drain_deadline` is named in the log and left to redelivery.
///
/// # Errors
/// If the queue cannot be consumed at all.
pub async fn run(
    settings: WorkerSettings,
    parts: Parts,
    drain_deadline: Duration,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let core = Arc::new(Core {
        queue: parts.queue,
        index: parts.index,
        transports: parts.transports,
        limits: settings.limits,
        plan: settings.plan,
        right_of_way: RightOfWay::new(settings.bulk),
        backoff: settings.backoff,
        retry_attempts: settings.retry_attempts,
        patience: settings.patience,
        keep: settings.ledger_retention,
        paces: Paces::default(),
        metrics: parts.metrics,
        clock: parts.clock,
        random: parts.random,
    });
    let (handlers, in_work) = (TaskTracker::new(), InWork::default());
    // A consumer that ends by itself takes the other one with it.
    let stopping = shutdown.child_token();
    let mut consumers = JoinSet::new();
    for (lane, prefetch) in
        [(Lane::Jobs, settings.job_prefetch), (Lane::Tasks, settings.task_prefetch)]
    {
        consumers.spawn(consume::consume(
            core.clone(),
            lane,
            prefetch,
            stopping.clone(),
            handlers.clone(),
            in_work.clone(),
            parts.consuming.clone(),
        ));
    }
    let mut result = Ok(());
    while let Some(ended) = consumers.join_next().await {
        stopping.cancel();
        if let Ok(Err(error)) = ended {
            result = Err(RunError::Queue(error));
        }
    }
    handlers.close();
    if tokio::time::timeout(drain_deadline, handlers.wait()).await.is_err() {
        for row in in_work.rows() {
            let for_ms = core.now().since(row.since).as_millis();
            warn!(
                lane = row.lane.name(),
                bytes = row.bytes,
                for_ms,
                "still running at the drain deadline"
            );
        }
    } else {
        info!("drained");
    }
    result
}
