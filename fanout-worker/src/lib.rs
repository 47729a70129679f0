//! The fan-out worker: takes accepted pushes from the queue, finds the devices they mean, and
//! delivers.
//!
//! [`run`] is the whole service; `main` and `pushctl standalone` differ only in what they hand
//! it.

mod context;
mod control;
mod delivery;
mod in_work;
mod intake;
mod lane_health;
mod ledger_bounds;
mod metrics;
pub mod readiness;
mod settings;
pub mod transport;

use std::{sync::Arc, time::Duration};

use push_index::Index;
use push_model::time::UnixMillis;
use push_queue::{Lane, Queue, QueueError};
use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{
    context::Context,
    control::{pace::Paces, priority::IndexPriority, waiting::Waiting},
    in_work::InWork,
    intake::consumer::consume,
};
pub use crate::{
    context::{ClosingLimits, PlanLimits, RetryLimits, RunLimits},
    control::{Clock, Random, priority::BulkLimits, retry::RetryPolicy},
    delivery::{plan, progress},
    lane_health::LaneHealth,
    ledger_bounds::LedgerLimits,
    metrics::Metrics,
    settings::{
        MqttArgs, MqttTuningArgs, ProcessArgs, ProcessSettings, WorkerArgs, WorkerSettings,
    },
    transport::Transports,
};

/// Why a worker ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The queue cannot be consumed, and trying again is pointless.
    #[error("cannot consume the queue")]
    Queue(#[from] QueueError),
}

/// What a worker works with.
#[derive(Clone)]
pub struct Dependencies {
    /// Where messages come from.
    pub queue: Arc<dyn Queue>,
    /// Where devices and the ledger are.
    pub index: Arc<dyn Index>,
    /// How devices are reached.
    pub transports: Transports,
    /// What is counted.
    pub metrics: Metrics,
    /// Which lanes it consumes.
    pub lanes: LaneHealth,
    /// Where the time comes from.
    pub clock: Clock,
    /// Where randomness comes from.
    pub random: Random,
}

impl Dependencies {
    /// Dependencies with the system's clock and randomness.
    pub fn new(queue: Arc<dyn Queue>, index: Arc<dyn Index>, transports: Transports) -> Self {
        Self {
            queue,
            index,
            transports,
            metrics: Metrics::default(),
            lanes: LaneHealth::default(),
            clock: Arc::new(UnixMillis::now),
            random: Arc::new(rand::random::<u64>),
        }
    }
}

impl std::fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dependencies")
            .field("queue", &self.queue)
            .field("index", &self.index)
            .field("transports", &self.transports)
            .finish_non_exhaustive()
    }
}

/// Runs a worker until `shutdown`, then drains: takes nothing more, finishes the batches in
/// work, saves their checkpoints, publishes what is not done as tasks that go on from there. What is still running after
/// `drain_deadline` is named in the log and left to redelivery.
///
/// # Errors
/// If the queue cannot be consumed at all.
pub async fn run(
    settings: WorkerSettings,
    dependencies: Dependencies,
    drain_deadline: Duration,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let context = Arc::new(Context {
        queue: dependencies.queue,
        index: dependencies.index,
        transports: dependencies.transports,
        run: settings.run,
        plan: settings.plan,
        retry: settings.retry,
        retry_limits: settings.retry_limits,
        closing: settings.closing,
        priority: IndexPriority::new(settings.bulk),
        waiting: Waiting {
            policy: settings.index_pause,
            hold: settings.hold,
            random: dependencies.random.clone(),
        },
        keep: settings.ledger_retention,
        ledger: settings.ledger,
        paces: Paces::default(),
        metrics: dependencies.metrics,
        clock: dependencies.clock,
        random: dependencies.random,
    });
    let (handlers, in_work) = (TaskTracker::new(), InWork::default());
    // A consumer that ends by itself takes the other one with it.
    let stopping = shutdown.child_token();
    let mut consumers = JoinSet::new();
    for (lane, prefetch) in
        [(Lane::Jobs, settings.job_prefetch), (Lane::Tasks, settings.task_prefetch)]
    {
        consumers.spawn(consume(
            context.clone(),
            lane,
            prefetch,
            stopping.clone(),
            handlers.clone(),
            in_work.clone(),
            dependencies.lanes.clone(),
        ));
    }
    let mut upkeep = JoinSet::new();
    upkeep.spawn(ledger_bounds::keep(context.clone(), stopping.clone()));
    let mut result = Ok(());
    while let Some(ended) = consumers.join_next().await {
        stopping.cancel();
        if let Ok(Err(error)) = ended {
            result = Err(RunError::Queue(error));
        }
    }
    // It ends with the consumers, for `stopping` is cancelled when the last of them ends.
    while upkeep.join_next().await.is_some() {}
    handlers.close();
    if tokio::time::timeout(drain_deadline, handlers.wait()).await.is_err() {
        for row in in_work.rows() {
            let for_ms = context.now().since(row.since).as_millis();
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
