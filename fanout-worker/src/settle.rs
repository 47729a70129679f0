//! Carrying out a verdict: the step between what a turn came to and what the queue is told.
//!
//! The order is always the same: first what must not be lost is published and confirmed, then
//! the message that stood for it is acknowledged. Where the first step fails, the second is not
//! done, and the queue delivers the message again.

use bytes::Bytes;
use push_shared::{
    envelope::Task,
    queue::{Delivery, Lane},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    core::Core,
    patience::GaveUp,
    verdict::{TurnEnd, Verdict, decide},
};

/// The message stays with the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undecided;

/// Decides about a strand whose turn ended, and publishes what remains of it.
pub(crate) async fn settle_turn(
    core: &Core,
    task: Task,
    end: TurnEnd,
    stopping: &CancellationToken,
) -> Result<(), Undecided> {
    let head = &task.job.head;
    let jitter = core.jitter();
    let deadline = core.limits.deadline(head);
    let verdict = decide(end, task.attempt, &core.backoff, core.now(), deadline, jitter);
    debug!(message_id = %head.message_id, strand = %task.strand, ?verdict, "turn ended");
    core.metrics.turn(&verdict);
    let message_id = head.message_id;
    let task = Task { overtaken_at: None, ..task };
    let (rest, delay) = match verdict {
        Verdict::Ack => return Ok(()),
        Verdict::Continue => (Task { attempt: attempt_after(&task, 0), ..task }, None),
        Verdict::PutOff(delay) => {
            let more = task.attempt.saturating_add(1);
            (Task { attempt: attempt_after(&task, more), ..task }, Some(delay))
        }
        Verdict::Pace(delay) => (Task { attempt: attempt_after(&task, 0), ..task }, Some(delay)),
        Verdict::StandBy(delay, overtaken_at) => (Task { overtaken_at, ..task }, Some(delay)),
        Verdict::Dead(reason) => {
            warn!(%message_id, reason, "strand put aside as a dead letter");
            let envelope = task.encode().map_err(|_| Undecided)?;
            return put_aside(core, Lane::Tasks, envelope, &reason, stopping).await;
        }
    };
    let envelope = rest.encode().map_err(|_| Undecided)?;
    let publish = async || match delay {
        None => core.queue.publish(Lane::Tasks, envelope.clone()).await,
        Some(delay) => core.queue.publish_later(Lane::Tasks, envelope.clone(), delay).await,
    };
    Ok(core.patience.publish_until(stopping, publish).await?)
}

/// A strand of the plan counts how often it was put off in a row; a retry keeps the number of
/// tries that its devices had.
fn attempt_after(task: &Task, planned: u32) -> u32 {
    if task.retries.is_some() { task.attempt } else { planned }
}

/// Stores what cannot be processed as a dead letter.
pub(crate) async fn put_aside(
    core: &Core,
    lane: Lane,
    envelope: Bytes,
    reason: &str,
    stopping: &CancellationToken,
) -> Result<(), Undecided> {
    warn!(lane = lane.name(), bytes = envelope.len(), reason, "dead letter");
    let publish = || core.queue.publish_dead(lane, envelope.clone(), reason);
    core.patience.publish_until(stopping, publish).await?;
    core.metrics.dead_letter(lane);
    Ok(())
}

impl From<GaveUp> for Undecided {
    fn from(_: GaveUp) -> Self {
        Self
    }
}

/// Tells the queue what became of a message. A failure here is harmless: the message comes
/// again and finds its work done.
pub(crate) async fn close(delivery: Delivery, decided: Result<(), Undecided>) {
    let told = match decided {
        Ok(()) => delivery.ack().await,
        Err(Undecided) => delivery.requeue().await,
    };
    if let Err(error) = told {
        debug!(error = &error as &dyn std::error::Error, "the queue will deliver a message again");
    }
}
