//! Tracks the work that is left of all broadcasts, in a list in the index and in metrics.
//!
//! Operators scale workers by it, because the depth of the task lane does not show it
//! ([`push_model::open_broadcast`]). No guarantee depends on it, so a failed request is not
//! retried: the next run, the closing check or the next reading corrects the list.
//!
//! - here: listing broadcasts, noting what runs leave, and reading the list for metrics
//! - `estimate`: the time that the remaining work will take (pure)

mod estimate;

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc, time::Duration};

use push_model::{
    app::AppKey,
    envelope::Job,
    ids::AudienceKind,
    ledger::{Entry, Plan, PlannedPartition},
    open_broadcast::OpenBroadcast,
    plan::slots_left,
};
use push_queue::Lane;
use push_store::IndexError;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::estimate::{Speed, estimate};
use crate::{
    context::Context, control::rate::Rate, dependencies::Observation, metrics::Estimate,
    partition::remaining::Remaining,
};

/// Lists a broadcast whose partitions are shared, unless all of them have ended.
pub(crate) async fn list(context: &Context, job: &Job, entry: &Entry, plan: &Plan) {
    if entry.recalled_at.is_some() {
        return;
    }
    let left = |(number, planned): (u32, &PlannedPartition)| {
        let slots = slots_left(&planned.ranges, entry.partition(number).state.checkpoint);
        u32::try_from(slots).unwrap_or(u32::MAX)
    };
    let devices_left = (0..).zip(&plan.partitions).map(left).collect();
    let broadcast = open(context, job, devices_left);
    if broadcast.total_left() > 0 {
        noted(context.ledger.list_broadcast(&broadcast).await);
    }
}

/// Notes the devices that a run leaves of a partition.
pub(crate) async fn note_remaining(
    context: &Context,
    job: &Job,
    plan: Option<&Plan>,
    partition: u32,
    remaining: Remaining,
) {
    if job.audience.kind() == AudienceKind::Named {
        return;
    }
    let message = &job.head.message_id;
    let is_alone = plan.is_some_and(|plan| plan.partitions.len() == 1);
    noted(match remaining {
        Remaining::Unknown => return,
        Remaining::Recalled => context.ledger.unlist_broadcast(message).await,
        // It is listed once a run in the job lane could not finish it.
        Remaining::Devices(left @ 1..) if is_alone => {
            let broadcast = open(context, job, vec![left]);
            let listed = context.ledger.list_broadcast(&broadcast).await;
            match listed {
                Ok(()) => context.ledger.set_devices_left(message, partition, left).await,
                failed => failed,
            }
        }
        Remaining::Devices(left) => context.ledger.set_devices_left(message, partition, left).await,
    });
}

/// Takes a broadcast whose entry is closed off the list.
pub(crate) async fn unlist(context: &Context, job: &Job) {
    noted(context.ledger.unlist_broadcast(&job.head.message_id).await);
}

fn open(context: &Context, job: &Job, devices_left: Vec<u32>) -> OpenBroadcast {
    let (message_id, app) = (job.head.message_id, job.app());
    OpenBroadcast { message_id, app, ends_at: context.deadline(&job.head), devices_left }
}

fn noted(result: Result<(), IndexError>) {
    if let Err(error) = result {
        let error = &error as &dyn std::error::Error;
        debug!(error, "the remaining devices of a broadcast were not noted");
    }
}

/// Time after its end for which a broadcast whose entry does not close stays in the list. It counts
/// as overdue meanwhile, so that the operator learns of it.
const KEPT_OVERDUE: Duration = Duration::from_hours(24);

/// Reads the list immediately and then at every interval, until the worker stops.
pub(crate) async fn keep_reading(
    context: Arc<Context>,
    observation: Observation,
    stopping: CancellationToken,
) {
    let reading = async {
        let mut rate = Rate::default();
        loop {
            rate.measured(context.rate.take());
            let workers = observation.stores.consumers(Lane::Tasks).unwrap_or(1);
            let read = read(&context, Speed { rate: rate.value(), workers }).await;
            if let Err(error) = &read {
                let error = error as &dyn std::error::Error;
                debug!(error, "the list of open broadcasts was not read");
            }
            context.metrics.broadcasts(read.ok());
            tokio::time::sleep(observation.interval).await;
        }
    };
    stopping.run_until_cancelled(reading).await;
}

async fn read(context: &Context, speed: Speed) -> Result<Estimate, IndexError> {
    let mut listed = context.ledger.open_broadcasts().await?;
    // An entry is closed by the first check after its message may be written off.
    let rest = context.closing.write_off_after + context.closing.every;
    let is_kept = |one: &OpenBroadcast| context.now() <= one.ends_at.plus(rest).plus(KEPT_OVERDUE);
    for forgotten in listed.extract_if(.., |one| !is_kept(one)) {
        context.ledger.unlist_broadcast(&forgotten.message_id).await?;
    }
    let mut paces: BTreeMap<AppKey, NonZeroU32> = BTreeMap::new();
    for app in listed.iter().map(|one| &one.app) {
        if !paces.contains_key(app)
            && let Some(pace) = context.paces.ask(app, &*context.index).await?
        {
            paces.insert(app.clone(), pace);
        }
    }
    Ok(estimate(&listed, &paces, speed, context.now(), rest))
}
