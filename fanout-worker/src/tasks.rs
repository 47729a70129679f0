//! The task lane: strands of broadcasts, a turn at a time.

use push_shared::{
    envelope::Task,
    ledger::Entry,
    queue::{Delivery, Lane},
};
use tokio_util::sync::CancellationToken;

use crate::{
    core::Core,
    patience::Answer,
    retry::{WhatNow, what_now},
    settle::{close, put_aside, settle_turn},
    strand::Strand,
    verdict::TurnEnd,
};

/// Works on one strand for a turn and settles its message.
pub(crate) async fn handle(core: &Core, delivery: Delivery, stopping: &CancellationToken) {
    let decided = match Task::decode(&delivery.payload) {
        Err(error) => {
            put_aside(core, Lane::Tasks, delivery.payload.clone(), &error.to_string(), stopping)
                .await
        }
        Ok(task) => {
            let end = look_and_take_turn(core, &task, stopping).await;
            settle_turn(core, task, end, stopping).await
        }
    };
    close(delivery, decided).await;
}

async fn look_and_take_turn(core: &Core, task: &Task, stopping: &CancellationToken) -> TurnEnd {
    let head = &task.job.head;
    let entry = || core.index.entry(&head.app_id, &head.message_id);
    match core.patience.try_until(stopping, entry).await {
        Ok(Answer { value: Some(entry), .. }) => take_turn(core, &entry, task, stopping).await,
        Ok(Answer { value: None, .. }) => {
            TurnEnd::Broken("the ledger has no entry for this message".to_owned())
        }
        Err(gave_up) => gave_up.into(),
    }
}

/// Works on a strand from where the ledger says it is.
pub(crate) async fn take_turn(
    core: &Core,
    entry: &Entry,
    task: &Task,
    stopping: &CancellationToken,
) -> TurnEnd {
    let position = match what_now(entry, task) {
        WhatNow::Work(position) => position,
        WhatNow::Wait => return TurnEnd::Overtaken(None),
        WhatNow::StandBy(at) => return TurnEnd::Overtaken(Some(at)),
        WhatNow::Nothing => return TurnEnd::Finished,
    };
    let attempt = if task.retries.is_some() { task.attempt } else { 0 };
    let strand = Strand { job: &task.job, id: task.strand, slices: &task.slices, attempt };
    strand.turn(core, position, entry.recalled_at.is_some(), stopping).await
}
