//! The contract of a transport: its input and its promises.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_model::{app::AppKey, device::Target, ids::MessageId, localized::Localized};

use super::{lifetime::Lifetime, outcome::Outcome, sending::Sending};

/// A message for transports, built once for all its devices.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Its app, which differs from other apps of that name.
    pub app: AppKey,
    /// Its id, for logs and for providers that want one.
    pub message_id: MessageId,
    /// The bytes that the device receives.
    pub payload: Bytes,
    /// Its texts in other languages. [`Transports::deliver`](crate::Transports::deliver) makes a message for each
    /// language of them, so a transport needs only the payload.
    pub localized: Option<Arc<Localized>>,
    /// The language whose texts the payload has; none for the fallback's.
    pub language: Option<Box<str>>,
    /// The time within which it may be sent.
    pub lifetime: Lifetime,
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

    /// Names the server that it depends on, with its address, if that is one server.
    fn server(&self) -> Option<String> {
        None
    }

    /// Returns why its last connection failed, if one did.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Returns the longest time for which a device that is never answered stays without an outcome, while
    /// its provider answers for others.
    fn longest_silence(&self) -> Duration;

    /// Returns its connections to its provider, or `None` if it keeps none open.
    fn connections(&self) -> Option<Connections> {
        None
    }

    /// Returns what its provider answered so far: the kind of answer, its code, and their number.
    fn answers(&self) -> Vec<(&'static str, &'static str, u64)> {
        Vec::new()
    }

    /// Closes its connections. Deliveries under way end within seconds: devices that were handed over and not
    /// answered are [`Outcome::Undecided`], the others [`Outcome::Later`].
    async fn close(&self);
}
