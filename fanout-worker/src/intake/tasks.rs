//! The task lane: partitions of messages, worked on a run at a time, and checks that the ledger
//! entries of broadcasts close.

use push_model::{
    device::Carrier,
    envelope::{LateDevices, PartitionTask, Task, Work},
};
use push_queue::{Delivery, WorkLane};
use tracing::Instrument as _;

use super::{
    carry_out::carry_out,
    closing,
    settling::{Requeue, put_aside, unreadable},
};
use crate::{
    context::Context,
    control::{hold::Hold, retrier::RetryError},
    partition::{PartitionRun, RunEnd, RunResult, claim::ClaimRequest, run::Start},
    spans,
};

/// Processes one task.
pub(super) async fn process(
    context: &Context,
    delivery: &Delivery,
    hold: &Hold<'_>,
) -> Result<(), Requeue> {
    let task = match Task::decode(&delivery.payload) {
        Ok(task) => task,
        Err(error) => {
            let envelope = delivery.payload.clone();
            return unreadable(context, WorkLane::Tasks, envelope, &error, hold).await;
        }
    };
    spans::note_task(&task);
    let _in_work = context.closed.begin(std::iter::once(&task.job));
    carry_on(context, &task, delivery, hold).instrument(spans::task(&task)).await
}

async fn carry_on(
    context: &Context,
    task: &Task,
    delivery: &Delivery,
    hold: &Hold<'_>,
) -> Result<(), Requeue> {
    match &task.work {
        Work::Partition(partition) => run(context, task, partition.clone(), delivery, hold).await,
        Work::Closing(check) => match closing::check(context, task, *check, hold).await {
            Err(RetryError::Broken(reason)) => {
                put_aside(context, WorkLane::Tasks, delivery.payload.clone(), &reason, hold).await
            }
            checked => Ok(checked?),
        },
    }
}

async fn run(
    context: &Context,
    task: &Task,
    partition: PartitionTask,
    delivery: &Delivery,
    hold: &Hold<'_>,
) -> Result<(), Requeue> {
    let planned = task.planned(partition.partition);
    let transport = planned.and_then(|planned| planned.carrier).map(Carrier::kind);
    let transport = transport.or(partition.waits_for);
    let request = ClaimRequest::of(&partition, delivery.deliveries, (context.random)());
    // Devices of a message that is over are only counted, so the task needs no slot and never waits
    // for one.
    let is_written_off = partition.late_devices == LateDevices::Unrecorded;
    let is_over = is_written_off || context.now() > context.deadline(&task.job.head);
    let slot = if is_over {
        None
    } else {
        match hold.stopping().run_until_cancelled(context.slots.enter(transport)).await {
            Some(Some(slot)) => Some(slot),
            entered => {
                let end = if entered.is_none() { RunEnd::Interrupted } else { RunEnd::Crowded };
                let not_begun = RunResult::not_begun(end, request, partition.waits_for);
                let plan = task.plan.as_ref();
                return carry_out(context, &task.job, plan, partition, not_begun, hold).await;
            }
        }
    };
    let run = PartitionRun {
        context,
        job: &task.job,
        plan: task.plan.as_ref(),
        planned,
        lane: WorkLane::Tasks,
        slot: slot.as_ref(),
        late_devices: partition.late_devices,
        hold,
    };
    let ended = run.run(request, Start::Unclaimed).await;
    carry_out(context, &task.job, task.plan.as_ref(), partition, ended, hold).await
}
