//! The task lane: strands of broadcasts, a turn at a time.

use push_shared::{
    envelope::Task,
    ledger::{Entry, StrandId},
    queue::{Delivery, Lane},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    core::Core,
    jobs::prepare,
    patience::Answer,
    retry::{WhatNow, what_now},
    settle::{close, put_aside, settle_turn},
    strand::Strand,
    verdict::TurnEnd,
};

/// What is found of a message whose entry was lost.
const NO_ENTRY: &str = "the ledger has no entry for this message";

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
        Ok(Answer { value: Some(entry), .. }) => {
            take_turn(core, &entry, task, Lane::Tasks, stopping).await
        }
        Ok(Answer { value: None, .. }) => begin_again(core, task, stopping).await,
        Err(gave_up) => gave_up.into(),
    }
}

/// Works on a strand whose message has no entry in the ledger: a Redis master died, and what it
/// had not handed to its replica yet died with it. The entry is begun anew and the strand with
/// it: its devices are served once more rather than not at all. The devices of a retry are known
/// to no strand but their own, which is only open in the entry that was lost.
async fn begin_again(core: &Core, task: &Task, stopping: &CancellationToken) -> TurnEnd {
    let message_id = &task.job.head.message_id;
    if let StrandId::Retry(_) = task.strand {
        return TurnEnd::Broken(NO_ENTRY.to_owned());
    }
    match prepare(core, &task.job, stopping).await {
        Ok(Some((entry, _))) => {
            warn!(%message_id, strand = %task.strand, "{NO_ENTRY}: begun again");
            take_turn(core, &entry, task, Lane::Tasks, stopping).await
        }
        Ok(None) => TurnEnd::Finished,
        Err(gave_up) => gave_up.into(),
    }
}

/// Works on a strand from where the ledger says it is.
///
/// If that cannot be saved because the entry is gone by then, the turn ends, and the next one
/// finds it gone at its beginning.
pub(crate) async fn take_turn(
    core: &Core,
    entry: &Entry,
    task: &Task,
    lane: Lane,
    stopping: &CancellationToken,
) -> TurnEnd {
    let position = match what_now(entry, task) {
        WhatNow::Work(position) => position,
        WhatNow::Wait => return TurnEnd::Overtaken(None),
        WhatNow::StandBy(at) => return TurnEnd::Overtaken(Some(at)),
        WhatNow::Nothing => return TurnEnd::Finished,
    };
    let attempt = if task.retries.is_some() { task.attempt } else { 0 };
    let strand = Strand { job: &task.job, id: task.strand, slices: &task.slices, attempt, lane };
    let end = strand.turn(core, position, entry.recalled_at.is_some(), stopping).await;
    if let (TurnEnd::Broken(_), StrandId::Planned(_)) = (&end, task.strand) {
        let head = &task.job.head;
        if let Ok(None) = core.index.entry(&head.app_id, &head.message_id).await {
            return TurnEnd::Yielded;
        }
    }
    end
}
