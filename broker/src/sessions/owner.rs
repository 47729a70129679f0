//! A connection's hold on the session of its device.

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use bytestring::ByteString;
use rmqtt_codec::types::QoS;

use super::{
    Connected,
    memory::Reservation,
    session::{Outgoing, Owner, Session, SessionLoss},
};
use crate::clocks::Clocks;

/// A connection's hold on the session of its device. When it is dropped, the session goes offline,
/// unless another connection has taken it over.
#[derive(Debug)]
pub(crate) struct SessionOwner {
    pub(super) connected: Connected,
    pub(super) session: Arc<Session>,
    pub(super) connection: Owner,
    pub(super) resumed: bool,
}

impl SessionOwner {
    /// Whether the broker had kept the session from an earlier connection.
    pub(crate) fn resumed(&self) -> bool {
        self.resumed
    }

    /// Changes how long the session outlives this connection.
    pub(crate) fn keep_for(&self, keep: Duration) {
        self.session.keep_for(&self.connection, keep);
    }

    /// How long the session outlives this connection.
    pub(crate) fn keep(&self) -> Duration {
        self.session.keep(&self.connection)
    }

    pub(crate) fn topic(&self) -> &ByteString {
        self.session.topic()
    }

    /// Why the connection owns the session no longer, if that is so.
    pub(crate) fn loss(&self) -> Option<SessionLoss> {
        self.connection.loss()
    }

    /// Resolves when there may be something to send, or when the session may be lost.
    pub(crate) async fn changed(&self) {
        self.connection.changed().await;
    }

    /// The next message to send, of which at most `window` may be unacknowledged.
    pub(crate) fn next(&self, window: NonZeroU16, now: Clocks) -> Option<Outgoing> {
        self.session.next(&self.connection, window, now)
    }

    /// The device has taken responsibility for this message, or cannot take it at all. Its memory.
    pub(crate) fn acknowledge(&self, id: NonZeroU16) -> Option<Reservation> {
        self.session.acknowledge(&self.connection, id)
    }

    /// Subscribes the device to its topic, or ends that. Whether it was subscribed before.
    pub(crate) fn subscribe(&self, qos: Option<QoS>) -> bool {
        self.session.subscribe(&self.connection, qos)
    }
}

impl Drop for SessionOwner {
    fn drop(&mut self) {
        let now = Clocks::now();
        self.session.go_offline(&self.connection, now);
        if self.session.is_expired(now) {
            self.connected.sessions.remove(&self.session, now);
        }
    }
}
