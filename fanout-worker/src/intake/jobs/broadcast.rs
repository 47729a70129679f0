//! Sharing a large broadcast: each partition of its plan goes to the task lane as a task of its
//! own, for all workers to share.

use push_model::{
    envelope::{Job, LateDevices, PartitionTask, Task, Work},
    ledger::{Entry, Plan},
};
use push_queue::{Lane, QueueError};

use crate::{
    broadcasts,
    context::Context,
    control::{hold::Hold, retrier::RetryError},
    intake::closing,
};

/// Publishes the first task of every partition, and the broadcast's closing check.
pub(super) async fn share(
    context: &Context,
    job: &Job,
    entry: &Entry,
    plan: &Plan,
    hold: &Hold<'_>,
) -> Result<(), RetryError> {
    broadcasts::list(context, job, entry, plan).await;
    for number in (0..).zip(&plan.partitions).map(|(number, _)| number) {
        publish_first_task(context, job, entry, plan, number, hold).await?;
    }
    closing::begin(context, job, plan, hold).await
}

/// Publishes the first task of a partition. A partition that has been claimed has its task: the
/// job was delivered again. Two first tasks do no harm, because the one that claims second is
/// stale.
async fn publish_first_task(
    context: &Context,
    job: &Job,
    entry: &Entry,
    plan: &Plan,
    number: u32,
    hold: &Hold<'_>,
) -> Result<(), RetryError> {
    let state = entry.partition(number).state;
    if state.claim.is_some() || state.is_ended() {
        return Ok(());
    }
    let publish = async || {
        let work = Work::Partition(first_task(number, (context.random)()));
        let task = Task { job: job.clone(), plan: Some(plan.clone()), work };
        let envelope = task.encode().map_err(|_| QueueError::Closed)?;
        context.queue.publish(Lane::Tasks, envelope).await
    };
    context.retrier.publish(hold, publish).await
}

/// The first task of a partition.
pub(super) fn first_task(partition: u32, nonce: u64) -> PartitionTask {
    PartitionTask {
        partition,
        parent: 0,
        parent_owner: 0,
        nonce,
        continues: None,
        waits_for: None,
        attempt: 0,
        unsaved: None,
        progress: None,
        detached: false,
        late_devices: LateDevices::Expired,
    }
}
