//! What is left to do of all broadcasts: kept in a list in the index, and shown in metrics.
//!
//! The depth of the task lane says nothing about it ([`push_model::open_broadcast`]), and it is what
//! an operator scales workers on. Nothing that is promised depends on it, so a request that fails is
//! not made again: the next run, the closing check or the next reading corrects it.
//!
//! - here: listing broadcasts, and noting what runs leave
//! - `estimate`: how long what is left will take (pure)
//! - `reading`: reading the list now and then

mod estimate;
mod reading;

use push_index::IndexError;
use push_model::{
    envelope::Job,
    ids::AudienceKind,
    ledger::{Entry, Plan, PlannedPartition},
    open_broadcast::OpenBroadcast,
};
use tracing::debug;

pub(crate) use self::{estimate::Estimate, reading::keep_reading};
use crate::{context::Context, delivery::plan::slots_left};

/// What a run leaves of its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing is known that is not in the list, or the partition is another worker's.
    Unknown,
    /// So many devices.
    Devices(u32),
    /// Nothing, because the message was recalled.
    Recalled,
}

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

/// Notes what a run left of a partition.
pub(crate) async fn note_left(
    context: &Context,
    job: &Job,
    plan: Option<&Plan>,
    partition: u32,
    left: Left,
) {
    if job.audience.kind() == AudienceKind::Named {
        return;
    }
    let message = &job.head.message_id;
    let is_alone = plan.is_some_and(|plan| plan.partitions.len() == 1);
    noted(match left {
        Left::Unknown => return,
        Left::Recalled => context.ledger.unlist_broadcast(message).await,
        // It is listed only once it could not be sent at once.
        Left::Devices(left @ 1..) if is_alone => {
            let broadcast = open(context, job, vec![left]);
            let listed = context.ledger.list_broadcast(&broadcast).await;
            match listed {
                Ok(()) => context.ledger.set_devices_left(message, partition, left).await,
                failed => failed,
            }
        }
        Left::Devices(left) => context.ledger.set_devices_left(message, partition, left).await,
    });
}

/// Takes a broadcast off whose entry is closed.
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
        debug!(error, "what is left of a broadcast was not noted");
    }
}
