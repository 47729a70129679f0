//! The check that the ledger entry of a broadcast closes.
//!
//! A partition that has ended has no queue message any more. If the index then loses its last
//! writes, the ledger says that the partition is open, and no message is left that would end it.
//! Its devices were served; only the record is gone. So each broadcast has one more message in the
//! queue, which looks at the entry from time to time until it was found closed twice. When the
//! message is over for longer than a rest and its entry is still open, every partition that has
//! not ended is handed on once more: nothing is sent any more by then, and what is left is counted
//! as unrecorded.
//!
//! A push to named devices has no such message: it would cost more than the push. Its entry is
//! *reported* as closed after a rest ([`push_model::report`]).

use push_model::{
    envelope::{ClosingCheck, Job, PartitionTask, Task, Work},
    ledger::{Entry, Plan},
};
use push_queue::{Lane, QueueError};
use tracing::warn;

use crate::{
    context::Context,
    control::{hold::Hold, waiting::GaveUp},
    delivery::opening::{Opening, open},
};

/// Publishes the first check of a broadcast.
pub(super) async fn begin(
    context: &Context,
    job: &Job,
    plan: &Plan,
    hold: &Hold<'_>,
) -> Result<(), GaveUp> {
    next(context, job, Some(plan), ClosingCheck::default(), hold).await
}

/// Looks at the entry of a broadcast. [`GaveUp::Broken`] if the entry can't be read.
pub(super) async fn look(
    context: &Context,
    task: &Task,
    check: ClosingCheck,
    hold: &Hold<'_>,
) -> Result<(), GaveUp> {
    let (job, plan, head) = (&task.job, task.plan.as_ref(), &task.job.head);
    let read = || context.index.entry(&head.app_id, &head.message_id);
    let entry = context.waiting.for_index(hold, read).await?.value;
    let may_be_forgotten = context.now().plus(context.run.clock_allowance) > context.deadline(head);
    if entry.is_none() && may_be_forgotten && is_forgotten(context, job, hold).await? {
        context.metrics.closing_check("forgotten");
        return Ok(());
    }
    // One that knows only a recall is as good as none.
    let mut entry = entry.filter(|entry| entry.copy.is_some());
    // An index that lost the plan alone has an entry that can't close.
    if let (Some(entry), Some(plan)) = (&mut entry, plan)
        && entry.plan.is_none()
        && entry.copy == Some(job.copy)
    {
        let fix = || context.index.plan(&head.message_id, plan);
        entry.plan = context.waiting.for_index(hold, fix).await?.value;
    }
    // The entry of another copy of the message has a check of its own.
    let is_over = |entry: &Entry| entry.is_closed() || entry.copy != Some(job.copy);
    if entry.as_ref().is_some_and(is_over) {
        context.metrics.closing_check("closed");
        if check.closed {
            return Ok(());
        }
        return next(context, job, plan, ClosingCheck { closed: true }, hold).await;
    }
    context.metrics.closing_check(if entry.is_some() { "open" } else { "missing" });
    let end = context.deadline(head).plus(context.closing.rest);
    if context.now() > end {
        let entry = match entry {
            Some(entry) => entry,
            None => match open(context, job, plan.cloned(), None, hold).await? {
                Opening::Open(entry, _) => *entry,
                Opening::Repeated | Opening::After(_) => return Ok(()),
            },
        };
        close(context, task, &entry, hold).await?;
    }
    next(context, job, plan, ClosingCheck { closed: false }, hold).await
}

/// Whether an entry that is missing was deleted to keep the ledger within its bound. It never is
/// before its message has expired: one that is missing earlier was lost by the index.
async fn is_forgotten(context: &Context, job: &Job, hold: &Hold<'_>) -> Result<bool, GaveUp> {
    let read = || context.index.forgotten_until(&job.head.message_id);
    let until = context.waiting.for_index(hold, read).await?.value;
    Ok(until.is_some_and(|until| job.head.accepted_at <= until))
}

/// Hands on what has not ended, to be counted.
async fn close(
    context: &Context,
    task: &Task,
    entry: &Entry,
    hold: &Hold<'_>,
) -> Result<(), GaveUp> {
    let plan = entry.plan.as_ref().or(task.plan.as_ref());
    let partitions = plan.map_or(&[][..], |plan| &plan.partitions);
    for number in (0..).zip(partitions).map(|(number, _)| number) {
        let state = entry.partition(number).state;
        if state.is_ended() {
            continue;
        }
        let message_id = entry.message_id;
        warn!(%message_id, partition = number, "the index forgot how a partition ended");
        let publish = async || {
            let work = Work::Partition(PartitionTask {
                partition: number,
                parent: state.claim.map_or(0, |claim| claim.generation),
                nonce: (context.random)(),
                continues: Vec::new(),
                attempt: 0,
                unsaved: None,
                forgotten: true,
            });
            publish_now(context, Task { plan: plan.cloned(), work, ..task.clone() }).await
        };
        context.waiting.for_publish(hold, publish).await?;
    }
    Ok(())
}

async fn publish_now(context: &Context, task: Task) -> Result<(), QueueError> {
    let envelope = task.encode().map_err(|_| QueueError::Closed)?;
    context.queue.publish(Lane::Tasks, envelope).await
}

/// Publishes the next check.
async fn next(
    context: &Context,
    job: &Job,
    plan: Option<&Plan>,
    check: ClosingCheck,
    hold: &Hold<'_>,
) -> Result<(), GaveUp> {
    let task = Task { job: job.clone(), plan: plan.cloned(), work: Work::Closing(check) };
    let envelope = task.encode().map_err(|error| GaveUp::Broken(error.to_string()))?;
    let every = context.closing.every;
    let publish = || context.queue.publish_later(Lane::Tasks, envelope.clone(), every);
    context.waiting.for_publish(hold, publish).await
}
