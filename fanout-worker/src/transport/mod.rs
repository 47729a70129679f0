//! How a message leaves the service: one trait, one folder or file for each way.
//!
//! A transport gets a message and a batch of devices and answers for each of them. It knows
//! nothing of queues, checkpoints or the ledger, and it decides nothing about retries beyond its
//! own connection: what may pass is [`Outcome::Later`], and what is undecided because the
//! transport is away is [`TransportError::Unavailable`].

mod discard;
pub mod mqtt;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_shared::{
    device::Target,
    ids::{AppId, MessageId},
    ledger::{FailReason, RetryReason},
    time::UnixMillis,
};

pub use discard::Discard;

/// What sending needs to know of a message: made once, used for all its devices.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Its app.
    pub app_id: AppId,
    /// The message, for logs and for providers that want an id.
    pub message_id: MessageId,
    /// What the device receives.
    pub payload: Bytes,
    /// Nothing is sent after it.
    pub expires_at: UnixMillis,
}

/// What became of one device of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The transport acknowledged it.
    Sent,
    /// The provider says that the device is gone: remove it.
    Gone,
    /// The message expired before it was this device's turn.
    Expired,
    /// Not now, and why; after this time if the provider named one.
    Later(RetryReason, Option<Duration>),
    /// Never.
    Failed(FailReason),
}

/// Why a batch was not decided.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The transport as a whole is away, and waiting a little did not help. What was sent of the
    /// batch may be sent again.
    #[error("the transport is away")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A way to reach devices.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends to every target; the outcomes are in the order of the targets.
    ///
    /// The caller has decided that the message may be sent at `now`. If it expires while the
    /// batch is under way, the devices that are left are [`Outcome::Expired`]. A message that is
    /// expired at the call already is one for "now or never" (time to live 0): it is tried once,
    /// and neither the transport nor what is behind it keeps it for later.
    ///
    /// # Errors
    /// [`TransportError::Unavailable`] if any device stayed undecided: nothing may be counted.
    async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        now: UnixMillis,
    ) -> Result<Vec<Outcome>, TransportError>;

    /// Whether it could send now.
    async fn ready(&self) -> bool;

    /// Leaves in good order. Deliveries under way end as unavailable.
    async fn close(&self);
}
