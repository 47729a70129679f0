//! Carrying out a disposition.
//!
//! The order is always the same: what must not be lost is published and confirmed first, and only
//! then is the message that stood for it acknowledged. If the publish fails, the message is not
//! acknowledged, and the queue delivers it again.

use push_model::{
    envelope::{Job, PartitionTask, Task, Work},
    ledger::{Plan, PriorDeliveries},
};
use push_queue::{Lane, WorkLane};
use tracing::debug;

use super::{
    disposition::{Disposition, decide},
    settling::{Requeue, put_aside},
};
use crate::{
    broadcasts,
    context::Context,
    control::hold::Hold,
    partition::{RunEnd, RunResult, run::Continuation},
};

/// Decides on the queue message of a partition whose run ended, and publishes what remains of the
/// partition.
pub(super) async fn carry_out(
    context: &Context,
    job: &Job,
    plan: Option<&Plan>,
    task: PartitionTask,
    run: RunResult,
    hold: &Hold<'_>,
) -> Result<(), Requeue> {
    let RunResult { end, continuation, remaining, waits_for, detached: _ } = run;
    let detached = match end {
        RunEnd::Detached(_) => true,
        // The task is put off as it is.
        _ => task.detached && continuation.claim.is_none(),
    };
    context.metrics.runs_ended(end.name(), 1);
    // Before the message is settled: if this worker dies, its next delivery does this again.
    broadcasts::note_remaining(context, job, plan, task.partition, remaining).await;
    let head = &job.head;
    let (now, deadline) = (context.now(), context.deadline(head));
    let jitter = context.jitter();
    let disposition = decide(end, task.attempt, &context.retry, now, deadline, jitter);
    debug!(?disposition, "run ended");
    context.metrics.runs(disposition.name(), 1);
    let (attempt, delay) = match disposition {
        Disposition::Accept => return Ok(()),
        Disposition::Requeue => return Err(Requeue::Superseded),
        Disposition::Continue => (0, None),
        Disposition::Wait(delay) => (0, Some(delay)),
        Disposition::PutOff(delay) => (task.attempt.saturating_add(1), Some(delay)),
        Disposition::Reject(reason) => {
            // The dead letter continues the claim, so that a replay repeats nothing that was sent.
            let rest = PartitionTask {
                waits_for,
                detached,
                ..continued(context, &task, &continuation, task.attempt)
            };
            let task = Task { job: job.clone(), plan: plan.cloned(), work: Work::Partition(rest) };
            let envelope = task.encode().map_err(|_| Requeue::Unfinished)?;
            return put_aside(context, WorkLane::Tasks, envelope, &reason, hold).await;
        }
    };
    let next = || PartitionTask {
        waits_for,
        detached,
        ..continued(context, &task, &continuation, attempt)
    };
    let publish = async || {
        let task = Task { job: job.clone(), plan: plan.cloned(), work: Work::Partition(next()) };
        let envelope = task.encode().map_err(|_| push_queue::QueueError::Closed)?;
        match delay {
            None => context.queue.publish(Lane::Tasks, envelope).await,
            Some(delay) => context.queue.publish_later(Lane::Tasks, envelope, delay).await,
        }
    };
    context.closed.report_put_off(job, delay.unwrap_or_default());
    Ok(context.retrier.publish(hold, publish).await?)
}

/// The task that continues the partition. It has a nonce of its own, so that of two such tasks (the
/// publish was repeated, or this message is delivered again) the one that claims second is stale.
fn continued(
    context: &Context,
    task: &PartitionTask,
    continuation: &Continuation,
    attempt: u32,
) -> PartitionTask {
    PartitionTask {
        partition: task.partition,
        parent: continuation.claim.map_or(task.parent, |claim| claim.epoch),
        parent_owner: continuation.claim.map_or(task.parent_owner, |claim| claim.owner),
        nonce: PriorDeliveries::next_nonce(continuation.continues, (context.random)()),
        continues: continuation.continues,
        waits_for: None,
        attempt,
        unsaved: continuation.unsaved.clone(),
        progress: continuation.progress.clone().or_else(|| task.progress.clone()),
        detached: false,
        late_devices: task.late_devices,
    }
}
