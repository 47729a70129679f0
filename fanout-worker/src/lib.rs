//! The fan-out worker: takes accepted pushes from the queue, finds the devices they mean, and
//! delivers.
//!
//! [`run`] is the whole service. `main` and `pushctl standalone` call it with different engines.
//!
//! - `intake`: queue messages: taken, processed, settled
//! - `partition`: works on one partition of a message; the guarantees are made here
//! - `control`: when something may be done: retries, paces, index priority
//! - `broadcasts`: the remaining work of all broadcasts
//! - `supervision`: what happens when a part of the worker ends
//! - `upkeep`: the bound of the ledger, unused values of dictionaries
//! - `closed_messages`: counts closed messages, for the quotas of apps
//! - `dropped_copies`: logs copies of a message that are not sent, because another copy is
//! - `cli`, `settings`, `limits`, `dependencies`, `context`: what a worker is built from
//! - `readiness`, `lane_health`, `in_work`, `metrics`, `spans`: what operators see

mod broadcasts;
mod cli;
mod closed_messages;
mod context;
mod control;
mod dependencies;
mod dropped_copies;
mod in_work;
mod intake;
mod lane_health;
mod limits;
mod metrics;
mod partition;
pub mod readiness;
mod settings;
mod spans;
mod supervision;
mod upkeep;

use std::{sync::Arc, time::Duration};

use push_boot::outage::Outage;
use push_queue::{QueueError, WorkLane};
use tokio::{
    sync::Notify,
    task::{JoinError, JoinSet},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

pub use crate::{
    cli::Cli,
    control::{Random, priority::BulkLimits, retry_policy::RetryPolicy},
    dependencies::{Dependencies, Observation},
    lane_health::LaneHealth,
    limits::{ClosingLimits, LedgerLimits, PlanLimits, RetryLimits, RunLimits},
    metrics::Metrics,
    settings::{ProcessArgs, ProcessSettings, WorkerArgs, WorkerSettings},
};
use crate::{
    closed_messages::ClosedMessages,
    context::Context,
    control::{
        detachments::Detachments,
        pace::PaceCache,
        priority::IndexPriority,
        rate::RateMeter,
        retrier::Retrier,
        slots::{TASKS_AHEAD, TaskSlots},
    },
    dropped_copies::DroppedCopies,
    in_work::InWork,
    intake::{consume, isolation::consume_isolated},
    upkeep::{dictionary_sweeps, ledger_bounds},
};

/// Why a worker ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The queue cannot be consumed, and trying again is pointless.
    #[error("cannot consume the queue")]
    Queue(#[from] QueueError),
    /// A task that consumes the queue panicked or was cancelled, which is a bug of this program.
    /// The worker stops, so that its supervisor starts it anew.
    #[error("a task that consumes the queue failed")]
    Consumer(#[source] JoinError),
    /// The same of a task that keeps the ledger within its bound, counts what was closed, or sweeps
    /// dictionaries.
    #[error("a task that looks after the index failed")]
    Upkeep(#[source] JoinError),
}

/// Runs a worker until `shutdown`, then drains: takes no more messages, finishes the batches in
/// work, saves their checkpoints, and publishes the rest as tasks that continue from there.
/// Messages that are still in work after `drain_deadline` are logged, and the queue delivers them
/// again.
///
/// # Errors
/// If the queue cannot be consumed at all, or a part of the worker panicked.
pub async fn run(
    settings: WorkerSettings,
    dependencies: Dependencies,
    drain_deadline: Duration,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let task_prefetch = ahead(settings.task_prefetch, dependencies.transports.each().count());
    let context = Arc::new_cyclic(|me| Context {
        queue: dependencies.queue,
        index: dependencies.stores.index,
        ledger: dependencies.stores.ledger,
        transports: dependencies.transports,
        run: settings.run,
        plan: settings.plan,
        retry: settings.retry,
        retry_limits: settings.retry_limits,
        gone_limit: settings.gone_limit,
        closing: settings.closing,
        priority: IndexPriority::new(settings.bulk),
        slots: TaskSlots::new(usize::from(settings.task_prefetch)),
        detached: Detachments::default(),
        me: me.clone(),
        retrier: Retrier {
            policy: settings.index_pause,
            hold: settings.hold,
            random: dependencies.random.clone(),
            retries: dependencies.metrics.store_retries(),
            index_outage: Outage::default(),
            queue_outage: Outage::default(),
        },
        retention: settings.ledger_retention,
        ledger_limits: settings.ledger,
        paces: PaceCache::default(),
        rate: RateMeter::default(),
        closed: ClosedMessages::new(settings.ledger_retention, dependencies.clock.clone()),
        has_isolated: Notify::new(),
        dropped_copies: DroppedCopies::default(),
        metrics: dependencies.metrics,
        clock: dependencies.clock,
        random: dependencies.random,
    });
    let (handlers, in_work) = (TaskTracker::new(), InWork::default());
    let stopping = shutdown.child_token();
    let mut consumers = JoinSet::new();
    for (lane, prefetch) in
        [(WorkLane::Jobs, settings.job_prefetch), (WorkLane::Tasks, task_prefetch)]
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
    consumers.spawn(consume_isolated(
        context.clone(),
        stopping.clone(),
        handlers.clone(),
        in_work.clone(),
    ));
    let mut upkeep = JoinSet::new();
    upkeep.spawn(ledger_bounds::enforce(context.clone(), stopping.clone()));
    upkeep.spawn({
        let (context, stopping) = (context.clone(), stopping.clone());
        async move { context.closed.keep_writing(&*context.index, &stopping).await }
    });
    upkeep.spawn(dictionary_sweeps::keep_sweeping(context.clone(), stopping.clone()));
    if let Some(observation) = dependencies.observation {
        upkeep.spawn(broadcasts::keep_reading(context.clone(), observation, stopping.clone()));
    }
    let result = supervision::join(consumers, upkeep, &stopping).await;
    handlers.close();
    let drained = tokio::time::timeout(drain_deadline, async {
        handlers.wait().await;
        context.detached.finished().await;
        context.closed.write(&*context.index).await;
    });
    if drained.await.is_err() {
        for row in in_work.rows() {
            let for_ms = context.now().since(row.since).as_millis();
            row.span.in_scope(|| {
                warn!(
                    runbook = "a-program-stops-with-work-left",
                    bytes = row.bytes,
                    for_ms,
                    "still running at the drain deadline"
                );
            });
        }
    } else {
        info!("drained");
    }
    result
}

/// Returns the number of tasks that the queue delivers at a time. Some of them wait for a slot of
/// their transport.
fn ahead(slots: u16, transports: usize) -> u16 {
    let ahead = usize::from(slots) * TASKS_AHEAD * transports.max(1);
    u16::try_from(ahead).unwrap_or(u16::MAX)
}
