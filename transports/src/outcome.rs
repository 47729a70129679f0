//! The outcome of a delivery for one device.

use std::time::Duration;

use push_model::{
    ledger::{FailReason, RetryReason},
    time::UnixMillis,
};

/// The outcome of one device of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The provider acknowledged the message.
    Sent,
    /// The provider says that the device is gone: remove it, unless it registered later.
    Gone {
        /// Since when, if the provider knows.
        since: Option<UnixMillis>,
        /// The provider's code.
        code: &'static str,
    },
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
