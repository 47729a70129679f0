//! Finished pushes to one device each, written through the ledger of an engine with the two steps
//! that a worker takes: it opens the entry and claims it, and saves the outcome.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use push_index::Index;
use push_model::{
    ids::{AppId, MessageId},
    ledger::{Advance, Advanced, Claim, Counts, Opened, Outcomes, PartitionState, Plan},
    time::UnixMillis,
};
use tokio::task::JoinSet;

/// Tasks that write at once, and entries that each of them has in work: together as many as a
/// store takes in its groups of calls.
const WRITERS: usize = 4;
const IN_WORK: usize = 512;
/// When the pushes expire, and until when their entries are kept, after they were accepted.
const LIFE: Duration = Duration::from_hours(1);
const KEPT: Duration = Duration::from_hours(48);

/// Writes so many, and gives the id of one of `each`.
pub(crate) async fn write(
    index: &Arc<dyn Index>,
    app: &AppId,
    pushes: usize,
    each: usize,
) -> anyhow::Result<Vec<MessageId>> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (index, app) = (Arc::clone(index), app.clone());
        writers.spawn(async move {
            stream::iter((writer..pushes).step_by(WRITERS))
                .map(|number| {
                    let (index, app) = (&*index, &app);
                    async move {
                        let id = one(index, app).await?;
                        anyhow::Ok(number.is_multiple_of(each).then_some(id))
                    }
                })
                .buffer_unordered(IN_WORK)
                .try_fold(Vec::new(), |mut ids, id| async move {
                    ids.extend(id);
                    Ok(ids)
                })
                .await
        });
    }
    let mut ids = Vec::with_capacity(pushes / each + 1);
    while let Some(written) = writers.join_next().await {
        ids.extend(written??);
    }
    Ok(ids)
}

/// One that was sent to its device.
async fn one(index: &dyn Index, app: &AppId) -> anyhow::Result<MessageId> {
    let message_id = MessageId::issue(app);
    let accepted_at = UnixMillis::now();
    // Any numbers do that no other claim has.
    let (nonce, owner) = message_id.as_uuid().as_u64_pair();
    let opened = Opened {
        message_id,
        app_id: app.clone(),
        accepted_at,
        expires_at: accepted_at.plus(LIFE),
        copy: 0,
        keep_until: accepted_at.plus(KEPT),
        plan: Some(Plan::named()),
        claim: Some(Claim { generation: 1, nonce, delivery: 1, owner }),
        replaces: None,
    };
    let from = index.open(&opened).await?.partition(0).state;
    let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
    let step = Advance {
        copy: opened.copy,
        partition: 0,
        from,
        to: PartitionState::ENDED,
        leftovers: None,
        counts: Counts { targeted: 1, outcomes, ..Counts::default() },
        keep_until: None,
    };
    let advanced = index.advance(app, &message_id, &step).await?;
    ensure!(advanced == Advanced::Saved { recalled: false }, "a push is {advanced:?}");
    Ok(message_id)
}
