//! Writes finished pushes to one device each through the ledger of an index engine, in the two
//! steps of a worker: begin the entry with a claim, then commit the outcome.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use push_index::Ledger;
use push_model::{
    app::AppKey,
    ids::MessageId,
    ledger::{Advance, AdvanceOutcome, Claim, Counts, NewEntry, Outcomes, PartitionState, Plan},
    time::UnixMillis,
};
use tokio::task::JoinSet;

/// Concurrent tasks, and entries that each of them writes concurrently: together enough to fill the
/// engine's groups of calls.
const WRITERS: usize = 4;
const CONCURRENT_ENTRIES: usize = 512;
/// The time to live of the pushes, and the retention of their entries.
const TIME_TO_LIVE: Duration = Duration::from_hours(1);
const RETENTION: Duration = Duration::from_hours(48);

/// Writes `pushes` entries, and returns the id of every `sample_each`th.
pub(crate) async fn write_finished(
    ledger: &Arc<dyn Ledger>,
    app: &AppKey,
    pushes: usize,
    sample_each: usize,
) -> anyhow::Result<Vec<MessageId>> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (ledger, app) = (Arc::clone(ledger), app.clone());
        writers.spawn(async move {
            stream::iter((writer..pushes).step_by(WRITERS))
                .map(|number| {
                    let (ledger, app) = (&*ledger, &app);
                    async move {
                        let id = write_one(ledger, app).await?;
                        anyhow::Ok(number.is_multiple_of(sample_each).then_some(id))
                    }
                })
                .buffer_unordered(CONCURRENT_ENTRIES)
                .try_fold(Vec::new(), |mut ids, id| async move {
                    ids.extend(id);
                    Ok(ids)
                })
                .await
        });
    }
    let mut ids = Vec::with_capacity(pushes / sample_each + 1);
    while let Some(written) = writers.join_next().await {
        ids.extend(written??);
    }
    Ok(ids)
}

/// Writes the entry of a push that was sent to its device.
async fn write_one(ledger: &dyn Ledger, app: &AppKey) -> anyhow::Result<MessageId> {
    let message_id = MessageId::issue_named(&app.id);
    let accepted_at = UnixMillis::now();
    // The two must be unique to this claim; the id is.
    let (nonce, owner) = message_id.as_uuid().as_u64_pair();
    let opened = NewEntry {
        message_id,
        app: app.clone(),
        accepted_at,
        expires_at: accepted_at.plus(TIME_TO_LIVE),
        dedup_nonce: 0,
        keep_until: accepted_at.plus(RETENTION),
        plan: Some(Plan::named()),
        claim: Some(Claim { epoch: 1, nonce, delivery: 1, owner }),
        replaces: None,
    };
    let from = ledger.begin(&opened).await?.partition(0).state;
    let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
    let step = Advance {
        dedup_nonce: opened.dedup_nonce,
        partition: 0,
        from,
        to: PartitionState::ENDED,
        leftovers: None,
        counts: Counts { targeted: 1, outcomes, ..Counts::default() },
        keep_until: None,
    };
    let advanced = ledger.advance(app, &message_id, &step).await?;
    ensure!(advanced == AdvanceOutcome::Saved { recalled: false }, "a push is {advanced:?}");
    Ok(message_id)
}
