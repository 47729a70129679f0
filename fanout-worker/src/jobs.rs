//! The job lane: batches of accepted pushes.
//!
//! A push to named devices, and a broadcast that is small, is sent at once. A large broadcast is
//! cut into strands that go to the task lane as one task each, for all workers to share. Either
//! way the envelope is acknowledged only when each of its jobs is sent, handed on, or put aside.

use futures::{StreamExt, stream};
use push_shared::{
    envelope::{Job, Task, decode_batch, encode_alone},
    index::Slice,
    ledger::{Entry, Opened, Plan, Position, StrandId},
    message::Audience,
    queue::{Delivery, Lane},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    core::Core,
    patience::GaveUp,
    plan,
    settle::{Undecided, close, put_aside, settle_turn},
    tasks::take_turn,
};

/// How many jobs of one envelope are worked on at once.
const JOBS_AT_ONCE: usize = 32;

/// Works off one envelope and settles it.
pub(crate) async fn handle(core: &Core, delivery: Delivery, stopping: &CancellationToken) {
    let _first = core.right_of_way.small();
    let decided = match decode_batch(&delivery.payload) {
        Err(error) => {
            put_aside(core, Lane::Jobs, delivery.payload.clone(), &error.to_string(), stopping)
                .await
        }
        Ok(jobs) => {
            let each = stream::iter(jobs).map(|job| async move {
                match job {
                    Ok(job) => handle_job(core, &job, stopping).await,
                    Err((bytes, error)) => {
                        put_aside(core, Lane::Jobs, bytes, &error.to_string(), stopping).await
                    }
                }
            });
            let results: Vec<_> = each.buffer_unordered(JOBS_AT_ONCE).collect().await;
            results.into_iter().collect()
        }
    };
    close(delivery, decided).await;
}

async fn handle_job(core: &Core, job: &Job, stopping: &CancellationToken) -> Result<(), Undecided> {
    // Side by side, so that a small push does not wait for one answer after the other. The turn
    // finds the app's pace known; if it could not be read, it asks again.
    let pace = core.pace(&job.head.app_id, stopping);
    let (prepared, _) = tokio::join!(prepare(core, job, stopping), pace);
    let (entry, plan) = match prepared {
        Ok(Some(prepared)) => prepared,
        Ok(None) => return Ok(()),
        Err(GaveUp::Interrupted) => return Err(Undecided),
        Err(GaveUp::Broken(reason)) => {
            let alone = encode_alone(job).map_err(|_| Undecided)?;
            return put_aside(core, Lane::Jobs, alone, &reason, stopping).await;
        }
    };
    match plan.strands.as_slice() {
        [] => Ok(()),
        [slices] => {
            let task = planned_task(job, 0, slices);
            let end = take_turn(core, &entry, &task, Lane::Jobs, stopping).await;
            settle_turn(core, task, end, stopping).await
        }
        strands => publish_strands(core, job, &entry, strands, stopping).await,
    }
}

fn planned_task(job: &Job, place: u32, slices: &[Slice]) -> Task {
    Task {
        job: job.clone(),
        strand: StrandId::Planned(place),
        slices: slices.to_vec(),
        attempt: 0,
        retries: None,
        overtaken_at: None,
    }
}

/// Opens the ledger entry and fixes the plan. `None` if this copy of the message is not to be
/// sent, because another one is.
pub(crate) async fn prepare(
    core: &Core,
    job: &Job,
    stopping: &CancellationToken,
) -> Result<Option<(Entry, Plan)>, GaveUp> {
    let head = &job.head;
    // A push to named devices needs no look at the index to be planned.
    let named = matches!(*job.audience, Audience::Clients(_));
    let opened = Opened {
        message_id: head.message_id,
        app_id: head.app_id.clone(),
        accepted_at: head.accepted_at,
        expires_at: head.expires_at,
        copy: job.copy,
        keep_until: head.accepted_at.max(core.now()).plus(core.keep),
        plan: named.then(|| Plan { strands: vec![Vec::new()] }),
    };
    let open = || core.index.open(&opened);
    let entry = core.patience.try_until(stopping, open).await?.value;
    if entry.copy != Some(job.copy) {
        info!(message_id = %head.message_id, "repeated request, already accepted");
        return Ok(None);
    }
    if let Some(plan) = entry.plan.clone() {
        return Ok(Some((entry, plan)));
    }
    let plan = match opened.plan {
        Some(plan) => plan,
        None => {
            let extent = || core.index.extent(&head.app_id);
            let extent = core.patience.try_until(stopping, extent).await?.value;
            plan::cut(&extent, core.plan.strands, core.plan.min_slots)
        }
    };
    let fix = || core.index.plan(&head.message_id, &plan);
    let plan = core.patience.try_until(stopping, fix).await?.value;
    Ok(Some((entry, plan)))
}

/// Hands a large broadcast to the task lane. A strand whose checkpoint is at the end already
/// (this is a redelivery) needs no task; a task that exists twice is harmless.
async fn publish_strands(
    core: &Core,
    job: &Job,
    entry: &Entry,
    strands: &[Vec<Slice>],
    stopping: &CancellationToken,
) -> Result<(), Undecided> {
    for (place, slices) in (0..).zip(strands) {
        if entry.position(StrandId::Planned(place)) == Some(Position::END) {
            continue;
        }
        let envelope = planned_task(job, place, slices).encode().map_err(|_| Undecided)?;
        let publish = || core.queue.publish(Lane::Tasks, envelope.clone());
        core.patience.publish_until(stopping, publish).await?;
    }
    Ok(())
}
