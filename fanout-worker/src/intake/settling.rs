//! Telling the queue what became of a message.

use std::time::Duration;

use bytes::Bytes;
use push_model::{
    envelope::{BadEnvelope, Job, Task, Work, decode_job_envelope, encode_jobs},
    ledger::PriorDeliveries,
};
use push_queue::{Delivery, MAX_DELIVERIES, WorkLane};
use tracing::{debug, error, info, warn};

use crate::{
    context::Context,
    control::{hold::Hold, retrier::RetryError},
    spans,
};

/// The delay of an envelope that a newer program wrote: during an upgrade, a worker of the new
/// version can read it soon.
const NEWER_VERSION_DELAY: Duration = Duration::from_secs(30);

/// From this many deliveries on, an envelope is processed alone ([`isolation`](super::isolation)).
pub(super) const ISOLATED_FROM: u32 = MAX_DELIVERIES / 4;

/// Why a message is requeued instead of acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requeue {
    /// Its work is not done, and no other message stands for it.
    Unfinished,
    /// A later delivery of it has the partition. The requeue has no effect if the queue has
    /// delivered it to another consumer already.
    Superseded,
}

/// For steps that another try can help. A message that can never be read was put aside before.
impl From<RetryError> for Requeue {
    fn from(error: RetryError) -> Self {
        if let RetryError::Broken(reason) = error {
            error!(
                runbook = "the-log-tells-of-a-fault",
                reason, "a message that can never be processed goes back to the queue"
            );
        }
        Self::Unfinished
    }
}

/// Puts an envelope aside that cannot be read. An envelope of a newer version is delayed instead,
/// until a newer worker takes it.
pub(super) async fn unreadable(
    context: &Context,
    lane: WorkLane,
    envelope: Bytes,
    error: &BadEnvelope,
    hold: &Hold<'_>,
) -> Result<(), Requeue> {
    spans::note_envelope(&envelope);
    if !matches!(error, BadEnvelope::Version(..)) {
        return put_aside(context, lane, envelope, &error.to_string(), hold).await;
    }
    info!(lane = lane.name(), %error, "an envelope waits for a newer worker");
    let delay = NEWER_VERSION_DELAY.mul_f64(1.0 + context.jitter());
    let publish = || context.queue.publish_later(lane.into(), envelope.clone(), delay);
    Ok(context.retrier.publish(hold, publish).await?)
}

/// Stores an envelope that cannot be processed as a dead letter.
pub(super) async fn put_aside(
    context: &Context,
    lane: WorkLane,
    envelope: Bytes,
    reason: &str,
    hold: &Hold<'_>,
) -> Result<(), Requeue> {
    warn!(
        runbook = "dead-letters-grow",
        lane = lane.name(),
        bytes = envelope.len(),
        reason,
        "dead letter"
    );
    let publish = || context.queue.publish_dead(lane.into(), envelope.clone(), reason);
    context.retrier.publish(hold, publish).await?;
    context.metrics.dead_letter(lane);
    Ok(())
}

/// Tells the queue what became of a message. A message that its worker could not finish is
/// published anew to its lane if it was delivered often: each requeue counts as a delivery, and
/// restarts of healthy workers must not make a message look like one that ends them. A failure here
/// is harmless: the message is delivered again, and work that is saved is not repeated.
pub(super) async fn settle(
    context: &Context,
    lane: WorkLane,
    delivery: Delivery,
    result: Result<(), Requeue>,
) {
    let settled = match result {
        Ok(()) => delivery.ack().await,
        Err(Requeue::Unfinished) if delivery.deliveries >= ISOLATED_FROM && delivery.is_ours() => {
            match context.queue.publish(lane.into(), renewed(context, lane, &delivery)).await {
                Ok(()) => delivery.ack().await,
                Err(_) => delivery.requeue().await,
            }
        }
        Err(_) => delivery.requeue().await,
    };
    if let Err(error) = settled {
        debug!(error = &error as &dyn std::error::Error, "the queue will deliver a message again");
    }
}

/// Gives a job another nonce, under which it continues the claims of its deliveries so far.
pub(super) fn renew_job(context: &Context, job: &mut Job, delivery: u32) {
    renew(context, &mut job.nonce, &mut job.continues, delivery);
}

/// Returns the payload of a message under another nonce, or the same payload if it cannot be read. Under
/// its old nonce, the new message would be taken for a delivery of the one that it replaces, which may
/// still be in the queue.
fn renewed(context: &Context, lane: WorkLane, delivery: &Delivery) -> Bytes {
    let (payload, deliveries) = (&delivery.payload, delivery.deliveries);
    let renewed = match lane {
        WorkLane::Jobs => decode_job_envelope(payload).ok().and_then(|jobs| {
            let mut jobs: Vec<Job> = jobs.into_iter().collect::<Result<_, _>>().ok()?;
            jobs.iter_mut().for_each(|job| renew_job(context, job, deliveries));
            encode_jobs(&jobs).ok()
        }),
        WorkLane::Tasks => Task::decode(payload).ok().and_then(|mut task| {
            if let Work::Partition(task) = &mut task.work {
                renew(context, &mut task.nonce, &mut task.continues, deliveries);
            }
            task.encode().ok()
        }),
    };
    renewed.unwrap_or_else(|| payload.clone())
}

fn renew(context: &Context, nonce: &mut u64, continues: &mut Option<PriorDeliveries>, by: u32) {
    *continues = Some(PriorDeliveries::followed_by(*continues, *nonce, by));
    *nonce = PriorDeliveries::next_nonce(*continues, (context.random)());
}
