//! The task lane: partitions of messages, a run at a time, and checks that broadcasts close.

use push_model::envelope::{PartitionTask, Task, Work};
use push_queue::{Delivery, Lane};
use tokio_util::sync::CancellationToken;

use super::{
    carry_out::carry_out,
    closing,
    settling::{Undecided, put_aside, put_aside_by_count, settle, unreadable},
};
use crate::{
    context::Context,
    control::{hold::Hold, waiting::GaveUp},
    delivery::{PartitionRun, claim::Ticket},
};

/// Works on one task and settles its message.
pub(super) async fn handle(context: &Context, delivery: Delivery, stopping: &CancellationToken) {
    let is_held = || delivery.is_held();
    let hold = context.waiting.hold(&is_held, stopping);
    let decided = match put_aside_by_count(context, Lane::Tasks, &delivery, &hold).await {
        Some(decided) => decided,
        None => work_on(context, &delivery, &hold).await,
    };
    settle(context, Lane::Tasks, delivery, decided).await;
}

async fn work_on(context: &Context, delivery: &Delivery, hold: &Hold<'_>) -> Result<(), Undecided> {
    let task = match Task::decode(&delivery.payload) {
        Ok(task) => task,
        Err(error) => {
            let envelope = delivery.payload.clone();
            return unreadable(context, Lane::Tasks, envelope, &error, hold).await;
        }
    };
    match &task.work {
        Work::Partition(partition) => run(context, &task, partition.clone(), delivery, hold).await,
        Work::Closing(check) => match closing::look(context, &task, *check, hold).await {
            Err(GaveUp::Broken(reason)) => {
                put_aside(context, Lane::Tasks, delivery.payload.clone(), &reason, hold).await
            }
            looked => Ok(looked?),
        },
    }
}

async fn run(
    context: &Context,
    task: &Task,
    partition: PartitionTask,
    delivery: &Delivery,
    hold: &Hold<'_>,
) -> Result<(), Undecided> {
    let run = PartitionRun {
        context,
        job: &task.job,
        plan: task.plan.as_ref(),
        slices: task.slices(partition.partition),
        lane: Lane::Tasks,
        forgotten: partition.forgotten,
        beyond_plan: partition.is_beyond_plan(),
        hold,
    };
    let ticket = Ticket::of(&partition, delivery.deliveries, (context.random)());
    let ended = run.run(ticket, None).await;
    carry_out(context, &task.job, task.plan.as_ref(), partition, ended, hold).await
}
