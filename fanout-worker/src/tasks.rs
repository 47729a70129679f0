//! The task lane: strands of broadcasts, a turn at a time.

use push_shared::{
    envelope::Task,
    queue::{Delivery, Lane},
};
use tokio_util::sync::CancellationToken;

use crate::{
    core::Core,
    settle::{close, put_aside, settle_turn},
    strand::Strand,
    verdict::TurnEnd,
};

/// Works on one strand for a turn and settles its message.
pub(crate) async fn handle(core: &Core, delivery: Delivery, stopping: &CancellationToken) {
    let decided = match Task::decode(&delivery.payload) {
        Err(error) => {
            put_aside(core, Lane::Tasks, delivery.payload.clone(), &error.to_string()).await
        }
        Ok(task) => {
            let end = take_turn(core, &task, stopping).await;
            settle_turn(core, task, end).await
        }
    };
    close(delivery, decided).await;
}

async fn take_turn(core: &Core, task: &Task, stopping: &CancellationToken) -> TurnEnd {
    let head = &task.job.head;
    let entry = || core.index.entry(&head.app_id, &head.message_id);
    match core.patience.try_until(stopping, entry).await {
        Ok(answer) => match answer.value {
            Some(entry) => {
                let strand =
                    Strand { job: &task.job, number: task.strand, slices: &task.slices };
                let recalled = entry.recalled_at.is_some();
                strand.turn(core, entry.position(task.strand), recalled, stopping).await
            }
            None => TurnEnd::Broken("the ledger has no entry for this message".to_owned()),
        },
        Err(gave_up) => gave_up.into(),
    }
}
