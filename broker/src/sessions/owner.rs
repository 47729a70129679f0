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

/// A connection's hold on the session of its device. On drop the session goes offline, unless another
/// connection has taken it over.
#[derive(Debug)]
pub(crate) struct SessionOwner {
    pub(super) connected: Connected,
    pub(super) session: Arc<Session>,
    pub(super) connection: Owner,
    pub(super) resumed: bool,
}

impl SessionOwner {
    /// Returns true if the session is from an earlier connection.
    pub(crate) fn resumed(&self) -> bool {
        self.resumed
    }

    /// Changes the time by which the session outlives this connection.
    pub(crate) fn keep_for(&self, keep: Duration) {
        self.session.keep_for(&self.connection, keep);
    }

    /// Returns the time by which the session outlives this connection.
    pub(crate) fn keep(&self) -> Duration {
        self.session.keep(&self.connection)
    }

    pub(crate) fn topic(&self) -> &ByteString {
        self.session.topic()
    }

    /// Returns the reason for which the connection lost the session, if it did.
    pub(crate) fn loss(&self) -> Option<SessionLoss> {
        self.connection.loss()
    }

    /// Resolves when there may be something to send, or when the session may be lost.
    pub(crate) async fn changed(&self) {
        self.connection.changed().await;
    }

    /// Returns the next message to send. At most `window` of them may be unacknowledged.
    pub(crate) fn next(&self, window: NonZeroU16, now: Clocks) -> Option<Outgoing> {
        self.session.next(&self.connection, window, now)
    }

    /// Removes a message that the device has acknowledged or cannot take, and returns its memory.
    pub(crate) fn acknowledge(&self, id: NonZeroU16) -> Option<Reservation> {
        self.session.acknowledge(&self.connection, id)
    }

    /// Subscribes the device to its topic, or unsubscribes it. Returns true if it was subscribed before.
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
