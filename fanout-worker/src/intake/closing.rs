//! The check that the ledger entry of a broadcast closes.
//!
//! A partition that has ended has no queue message any more. If the index then loses its last
//! writes, the ledger says that the partition is open, and no message is left that would end it.
//! Its devices were served; only the record is lost. So each broadcast has one more message in the
//! queue, which reads the entry every [`ClosingLimits::every`] until it was found closed twice.
//! Once the message is past its deadline for [`ClosingLimits::write_off_after`] and the entry is
//! still open, every partition that has not ended gets a last task: nothing is sent any more by
//! then, and the remaining devices are counted as unrecorded.
//!
//! A push to named devices has no such message, which would cost more than the push. Its entry is
//! *reported* as closed some time after its end ([`push_model::report`]).
//!
//! [`ClosingLimits::every`]: crate::limits::ClosingLimits::every
//! [`ClosingLimits::write_off_after`]: crate::limits::ClosingLimits::write_off_after

use push_model::{
    envelope::{ClosingCheck, Job, LateDevices, PartitionTask, Task, Work},
    ledger::{Entry, Plan},
};
use push_queue::{Lane, QueueError};
use tracing::{info, warn};

use crate::{
    broadcasts,
    context::Context,
    control::{hold::Hold, retrier::RetryError},
    partition::entry::{EntryOutcome, begin_entry},
};

/// Publishes the first check of a broadcast.
pub(super) async fn begin(
    context: &Context,
    job: &Job,
    plan: &Plan,
    hold: &Hold<'_>,
) -> Result<(), RetryError> {
    next(context, job, Some(plan), ClosingCheck::default(), hold).await
}

/// Checks the entry of a broadcast. [`RetryError::Broken`] if the entry can never be read.
pub(super) async fn check(
    context: &Context,
    task: &Task,
    check: ClosingCheck,
    hold: &Hold<'_>,
) -> Result<(), RetryError> {
    let (job, plan, head) = (&task.job, task.plan.as_ref(), &task.job.head);
    let app = job.app();
    let read = || context.ledger.entry(&app, &head.message_id);
    let entry = context.retrier.ask_store(hold, read).await?.value;
    let may_be_evicted = context.now().plus(context.run.clock_allowance) > context.deadline(head);
    if entry.is_none() && may_be_evicted && was_evicted(context, job, hold).await? {
        context.metrics.closing_check("forgotten");
        broadcasts::unlist(context, job).await;
        count_closed(context, task, check);
        return Ok(());
    }
    // An entry that holds nothing but a recall was not begun: it counts as missing.
    let mut entry = entry.filter(|entry| entry.dedup_nonce.is_some());
    // If the ledger lost the plan alone, the entry cannot close before the plan is fixed again.
    if let (Some(entry), Some(plan)) = (&mut entry, plan)
        && entry.plan.is_none()
        && entry.dedup_nonce == Some(job.dedup_nonce)
    {
        let fix = || context.ledger.plan(&app, &head.message_id, plan);
        entry.plan = context.retrier.ask_store(hold, fix).await?.value;
    }
    // If another copy of the message holds the entry, that copy has a check of its own.
    let is_done = |entry: &Entry| entry.is_closed() || entry.dedup_nonce != Some(job.dedup_nonce);
    if let Some(entry) = entry.as_ref().filter(|entry| is_done(entry)) {
        context.metrics.closing_check("closed");
        broadcasts::unlist(context, job).await;
        if check.closed {
            return Ok(());
        }
        log_end(context, job, entry);
        next(context, job, plan, ClosingCheck { closed: true }, hold).await?;
        count_closed(context, task, check);
        return Ok(());
    }
    let end = context.deadline(head).plus(context.closing.write_off_after);
    let is_overdue = context.now() > end;
    context.metrics.closing_check(match &entry {
        None => "missing",
        Some(_) if is_overdue => "overdue",
        Some(_) => "open",
    });
    if is_overdue {
        let entry = match entry {
            Some(entry) => entry,
            None => match begin_entry(context, job, plan.cloned(), None, hold).await? {
                EntryOutcome::Ours(entry, _) => *entry,
                EntryOutcome::Duplicate | EntryOutcome::Deferred(_) => return Ok(()),
                EntryOutcome::Evicted => {
                    broadcasts::unlist(context, job).await;
                    count_closed(context, task, check);
                    return Ok(());
                }
            },
        };
        close(context, task, &entry, hold).await?;
    }
    next(context, job, plan, ClosingCheck { closed: false }, hold).await
}

/// Logs what became of a broadcast. Only the copy of the message that holds the entry logs it.
fn log_end(context: &Context, job: &Job, entry: &Entry) {
    if entry.dedup_nonce != Some(job.dedup_nonce) {
        return;
    }
    let (head, outcomes) = (&job.head, &entry.outcomes);
    info!(
        app = %head.app_id,
        message_id = %head.message_id,
        targeted = entry.targeted,
        sent = outcomes.sent,
        failed = outcomes.failed.values().sum::<u64>(),
        expired = outcomes.expired,
        recalled = outcomes.recalled,
        seconds = context.now().since(head.accepted_at).as_secs(),
        "broadcast ended"
    );
}

/// Counts that the entry was found closed for the first time. A broadcast of one partition was
/// counted when its partition ended.
fn count_closed(context: &Context, task: &Task, check: ClosingCheck) {
    if !check.closed && task.plan.as_ref().is_some_and(|plan| plan.partitions.len() > 1) {
        context.closed.count(&task.job);
    }
}

/// Returns true if a missing entry was evicted to keep the ledger within its bound. The entry of a
/// broadcast is never evicted before its message has expired, so one that is missing earlier was
/// lost by the ledger.
async fn was_evicted(context: &Context, job: &Job, hold: &Hold<'_>) -> Result<bool, RetryError> {
    let app = job.app();
    let read = || context.ledger.evicted_until(&app, &job.head.message_id);
    let until = context.retrier.ask_store(hold, read).await?.value;
    Ok(until.is_some_and(|until| job.head.accepted_at <= until))
}

/// Publishes a last task for each partition that has not ended. It counts the remaining devices.
async fn close(
    context: &Context,
    task: &Task,
    entry: &Entry,
    hold: &Hold<'_>,
) -> Result<(), RetryError> {
    let plan = entry.plan.as_ref().or(task.plan.as_ref());
    let partitions = plan.map_or(&[][..], |plan| &plan.partitions);
    for number in (0..).zip(partitions).map(|(number, _)| number) {
        let state = entry.partition(number).state;
        if state.is_ended() {
            continue;
        }
        warn!(
            runbook = "a-store-is-unreachable-or-refuses-writes",
            partition = number,
            "the ledger lost how a partition ended"
        );
        let publish = async || {
            let work = Work::Partition(PartitionTask {
                partition: number,
                parent: state.claim.map_or(0, |claim| claim.epoch),
                parent_owner: state.claim.map_or(0, |claim| claim.owner),
                nonce: (context.random)(),
                continues: None,
                waits_for: None,
                attempt: 0,
                unsaved: None,
                progress: None,
                detached: false,
                late_devices: LateDevices::Unrecorded,
            });
            publish_now(context, Task { plan: plan.cloned(), work, ..task.clone() }).await
        };
        context.retrier.publish(hold, publish).await?;
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
) -> Result<(), RetryError> {
    let task = Task { job: job.clone(), plan: plan.cloned(), work: Work::Closing(check) };
    let envelope = task.encode().map_err(|error| RetryError::Broken(error.to_string()))?;
    let every = context.closing.every;
    if !check.closed {
        context.closed.report_put_off(job, every);
    }
    let publish = || context.queue.publish_later(Lane::Tasks, envelope.clone(), every);
    context.retrier.publish(hold, publish).await
}
