//! Carrying out a disposition.
//!
//! The order is always the same: first what must not be lost is published and confirmed, then the
//! message that stood for it is acknowledged. Where the first step fails, the second is not done,
//! and the queue delivers the message again.

use push_model::{
    envelope::{Job, PartitionTask, Task, Work},
    ledger::Plan,
};
use push_queue::Lane;
use tracing::{debug, warn};

use super::{
    disposition::{Disposition, decide},
    settling::{Undecided, put_aside},
};
use crate::{
    context::Context,
    control::hold::Hold,
    delivery::{Run, run::Resume},
};

/// Decides about a partition whose run ended, and publishes what remains of it.
pub(super) async fn carry_out(
    context: &Context,
    job: &Job,
    plan: Option<&Plan>,
    task: PartitionTask,
    run: Run,
    hold: &Hold<'_>,
) -> Result<(), Undecided> {
    let Run { end, resume } = run;
    let head = &job.head;
    let (now, deadline) = (context.now(), context.deadline(head));
    let jitter = context.jitter();
    let disposition = decide(end, task.attempt, &context.retry, now, deadline, jitter);
    let (message_id, partition) = (head.message_id, task.partition);
    debug!(%message_id, partition, ?disposition, "run ended");
    context.metrics.runs(&disposition, 1);
    let (attempt, delay) = match disposition {
        Disposition::Accept => return Ok(()),
        Disposition::Leave => return Err(Undecided::Leave),
        Disposition::Continue => (0, None),
        Disposition::Wait(delay) => (0, Some(delay)),
        Disposition::PutOff(delay) => (task.attempt.saturating_add(1), Some(delay)),
        Disposition::Reject(reason) => {
            warn!(%message_id, partition, reason, "partition put aside as a dead letter");
            // As it would go on, so that a replay repeats nothing that was sent.
            let rest = continued(context, &task, &resume, task.attempt);
            let task = Task { job: job.clone(), plan: plan.cloned(), work: Work::Partition(rest) };
            let envelope = task.encode().map_err(|_| Undecided::GiveBack)?;
            return put_aside(context, Lane::Tasks, envelope, &reason, hold).await;
        }
    };
    let next = || continued(context, &task, &resume, attempt);
    let publish = async || {
        let task = Task { job: job.clone(), plan: plan.cloned(), work: Work::Partition(next()) };
        let envelope = task.encode().map_err(|_| push_queue::QueueError::Closed)?;
        match delay {
            None => context.queue.publish(Lane::Tasks, envelope).await,
            Some(delay) => context.queue.publish_later(Lane::Tasks, envelope, delay).await,
        }
    };
    Ok(context.waiting.for_publish(hold, publish).await?)
}

/// The message that goes on: under a number of its own, so that of two that are there, because a
/// publish was repeated or this message is delivered again, one is stale.
fn continued(
    context: &Context,
    task: &PartitionTask,
    resume: &Resume,
    attempt: u32,
) -> PartitionTask {
    PartitionTask {
        partition: task.partition,
        parent: resume.claim.map_or(task.parent, |claim| claim.generation),
        nonce: (context.random)(),
        continues: resume.continues.clone(),
        attempt,
        unsaved: resume.unsaved.clone(),
        forgotten: task.forgotten,
    }
}
