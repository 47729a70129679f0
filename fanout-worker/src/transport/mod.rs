//! How a message leaves the service: one trait, one folder or file for each way.
//!
//! A transport gets a message and a batch of devices and answers for each device. It knows nothing
//! of queues, checkpoints or the ledger, and it decides nothing about retries beyond its own
//! connections. What it cannot bring about it says per device, so that one device, or a provider
//! that is away, costs no other device anything:
//! - [`Outcome::Later`] for a device that was certainly not reached and may be tried again;
//! - [`Outcome::Undecided`] for a device whose message left the worker without an answer. Another
//!   try may be a repeat, so the caller makes it later and in small groups.

mod discard;
mod dispatch;
pub mod mqtt;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_model::{
    device::Target,
    ids::{AppId, MessageId},
    ledger::{FailReason, RetryReason},
    time::UnixMillis,
};

pub use self::{discard::Discard, dispatch::Transports};

/// What sending needs to know of a message: made once, used for all its devices.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Its app.
    pub app_id: AppId,
    /// The message, for logs and for providers that want an id.
    pub message_id: MessageId,
    /// What the device receives.
    pub payload: Bytes,
    /// How long it may be sent.
    pub lifetime: Lifetime,
}

/// How long a message may be sent. The instants are inclusive: they are the last ones at which a
/// device may still be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Time to live 0: for devices that can take it now. Each device is tried once, and neither
    /// the transport nor what is behind it keeps the message for later.
    NowOrNever {
        /// The end of what still counts as "now".
        until: UnixMillis,
    },
    /// Until this instant. What is left of the time is handed to the provider, which may keep
    /// the message for devices that are away.
    Until(UnixMillis),
}

impl Lifetime {
    /// The last instant at which a device may be tried.
    pub fn end(self) -> UnixMillis {
        match self {
            Self::NowOrNever { until } | Self::Until(until) => until,
        }
    }

    /// Whether nothing may be sent any more at `now`.
    pub fn is_over(self, now: UnixMillis) -> bool {
        now > self.end()
    }
}

/// What became of one device of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The transport acknowledged it.
    Sent,
    /// The provider says that the device is gone: remove it.
    Gone,
    /// The message's lifetime was over before it was this device's turn.
    Expired,
    /// Not now, and why; after this time if the provider named one. The message was not accepted
    /// for this device: [`RetryReason::TransportAway`] means that it was not even handed over.
    Later(RetryReason, Option<Duration>),
    /// Never.
    Failed(FailReason),
    /// It may have happened: the message was handed over for this device and never answered.
    Undecided,
}

/// A way to reach devices.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends to every target. There is exactly one outcome for each target, in the order of the
    /// targets, and it comes within a time that the transport states, whatever the provider does.
    ///
    /// `now` is the wall clock at the call. A device whose turn comes when the message's
    /// lifetime is over is [`Outcome::Expired`], also if it was over at the call.
    async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        now: UnixMillis,
    ) -> Vec<Outcome>;

    /// Whether it could send now.
    async fn ready(&self) -> bool;

    /// Leaves in good order. Deliveries under way end at once: what was handed over and not
    /// answered is [`Outcome::Undecided`], the rest is [`Outcome::Later`].
    async fn close(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_instant_of_a_lifetime_is_part_of_it() {
        let end = UnixMillis(5);
        for lifetime in [Lifetime::Until(end), Lifetime::NowOrNever { until: end }] {
            assert!(!lifetime.is_over(end));
            assert!(lifetime.is_over(UnixMillis(6)));
        }
    }
}
