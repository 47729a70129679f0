//! Telling the queue what became of a message.

use std::time::Duration;

use bytes::Bytes;
use push_model::envelope::BadEnvelope;
use push_queue::{Delivery, Lane, MAX_DELIVERIES};
use tracing::{debug, error, info, warn};

use super::renaming::renamed;
use crate::{
    context::Context,
    control::{hold::Hold, waiting::GaveUp},
};

/// How long an envelope waits that was written by a newer program: some worker of a fleet that is
/// being replaced can read it soon.
const NEWER_WAITS: Duration = Duration::from_secs(30);

/// How often a message is handed out before giving it back publishes it anew. Each return counts
/// as a delivery, and restarts of healthy workers must not make a message look like one that kills
/// them.
const RETURNS: u32 = MAX_DELIVERIES / 4;

/// The message stays with the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undecided {
    /// It is given back.
    GiveBack,
    /// The queue has given it to another consumer.
    Leave,
}

/// For steps that another try can help: what can never be read is put aside before.
impl From<GaveUp> for Undecided {
    fn from(gave_up: GaveUp) -> Self {
        if let GaveUp::Broken(reason) = gave_up {
            error!(reason, "a message that can never be worked off goes back to the queue");
        }
        Self::GiveBack
    }
}

/// Puts a message aside that was handed out again and again and never settled: it may be what ends
/// its consumers. None if it is not such a one.
pub(super) async fn put_aside_by_count(
    context: &Context,
    lane: Lane,
    delivery: &Delivery,
    hold: &Hold<'_>,
) -> Option<Result<(), Undecided>> {
    if delivery.deliveries <= MAX_DELIVERIES {
        return None;
    }
    let reason = format!("delivered {} times and never settled", delivery.deliveries - 1);
    Some(put_aside(context, lane, delivery.payload.clone(), &reason, hold).await)
}

/// Deals with an envelope that cannot be read: a newer one waits for a newer worker, any other is a
/// dead letter.
pub(super) async fn unreadable(
    context: &Context,
    lane: Lane,
    envelope: Bytes,
    error: &BadEnvelope,
    hold: &Hold<'_>,
) -> Result<(), Undecided> {
    if !matches!(error, BadEnvelope::Version(_)) {
        return put_aside(context, lane, envelope, &error.to_string(), hold).await;
    }
    info!(lane = lane.name(), %error, "an envelope waits for a newer worker");
    let delay = NEWER_WAITS.mul_f64(1.0 + context.jitter());
    let publish = || context.queue.publish_later(lane, envelope.clone(), delay);
    Ok(context.waiting.for_publish(hold, publish).await?)
}

/// Stores what cannot be processed as a dead letter.
pub(super) async fn put_aside(
    context: &Context,
    lane: Lane,
    envelope: Bytes,
    reason: &str,
    hold: &Hold<'_>,
) -> Result<(), Undecided> {
    warn!(lane = lane.name(), bytes = envelope.len(), reason, "dead letter");
    let publish = || context.queue.publish_dead(lane, envelope.clone(), reason);
    context.waiting.for_publish(hold, publish).await?;
    context.metrics.dead_letter(lane);
    Ok(())
}

/// Tells the queue what became of a message. A failure here is harmless: the message comes
/// again and finds its work done.
pub(super) async fn settle(
    context: &Context,
    lane: Lane,
    delivery: Delivery,
    decided: Result<(), Undecided>,
) {
    let told = match decided {
        Ok(()) => delivery.ack().await,
        Err(Undecided::GiveBack) if delivery.deliveries >= RETURNS && delivery.is_held() => {
            match context.queue.publish(lane, renamed(context, lane, &delivery)).await {
                Ok(()) => delivery.ack().await,
                Err(_) => delivery.requeue().await,
            }
        }
        Err(_) => delivery.requeue().await,
    };
    if let Err(error) = told {
        debug!(error = &error as &dyn std::error::Error, "the queue will deliver a message again");
    }
}
