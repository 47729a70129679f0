//! The contract of a transport: its input and its promises.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_model::{
    app::AppKey,
    device::Target,
    ids::MessageId,
    ledger::{FailReason, RetryReason},
    time::UnixMillis,
};

use super::sending::Sending;

/// A message for transports, built once for all its devices.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Its app, which differs from other apps of that name.
    pub app: AppKey,
    /// Its id, for logs and for providers that want one.
    pub message_id: MessageId,
    /// The bytes that the device receives.
    pub payload: Bytes,
    /// The time within which it may be sent.
    pub lifetime: Lifetime,
}

/// The time within which a message may be sent. Its ends are inclusive: the last instants at which a
/// device may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Time to live 0: only for devices that can take the message now. Each device is tried once, and
    /// neither the transport nor its provider keeps the message.
    NowOrNever {
        /// The end of what still counts as "now".
        until: UnixMillis,
    },
    /// The message ends at this instant. The provider learns the remaining time and may keep the message
    /// that long for offline devices.
    Until(UnixMillis),
}

impl Lifetime {
    /// Returns the last instant at which a device may be tried.
    pub fn end(self) -> UnixMillis {
        match self {
            Self::NowOrNever { until } | Self::Until(until) => until,
        }
    }

    /// Returns true if the lifetime has ended at `now`.
    pub fn is_over(self, now: UnixMillis) -> bool {
        now > self.end()
    }
}

/// The outcome of one device of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The provider acknowledged the message.
    Sent,
    /// The provider says that the device is gone, and since when if it knows: remove it, unless it registered
    /// later.
    Gone(Option<UnixMillis>),
    /// The message's lifetime was over before it was this device's turn.
    Expired,
    /// The message was not accepted for this device, which may be tried again, after this time if
    /// the provider named one. [`RetryReason::TransportAway`] means that it was not even handed
    /// over.
    Later(RetryReason, Option<Duration>),
    /// The message was not accepted for this device, and never will be.
    Failed(FailReason),
    /// The message was handed over for this device and never answered: it may have been sent.
    Undecided,
    /// The message was not handed over for this device, because the delivery was told to stop.
    NotSent,
}

/// The connections of a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// The open connections.
    pub open: usize,
    /// The connections that it keeps open while its provider is available.
    pub wanted: usize,
}

/// A way to reach devices.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends to every target. Returns exactly one outcome for each target, in the order of the
    /// targets, within a time that the transport documents, whatever the provider does.
    ///
    /// Before each window of devices that it writes to a connection, it asks
    /// [`Sending::may_send_more`]. A device whose turn comes when the message's lifetime is over is
    /// [`Outcome::Expired`], even if it was over at the call. It reports outcomes that are known
    /// before the others with [`Sending::answer`].
    async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        sending: &Sending,
    ) -> Vec<Outcome>;

    /// Returns true if it could send now. Does not wait.
    async fn ready(&self) -> bool;

    /// Returns the longest time for which a device that is never answered stays without an outcome, while
    /// its provider answers for others.
    fn longest_silence(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// Returns its connections to its provider, or `None` if it keeps none open.
    fn connections(&self) -> Option<Connections> {
        None
    }

    /// Returns what its provider answered so far: the kind of answer, its code, and their number.
    fn answers(&self) -> Vec<(&'static str, &'static str, u64)> {
        Vec::new()
    }

    /// Closes its connections. Deliveries under way end immediately: devices that were handed over and not
    /// answered are [`Outcome::Undecided`], the others [`Outcome::Later`].
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
