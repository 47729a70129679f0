//! The connection that owns a session, and the reason for which it lost it.
//!
//! A connection learns from its own [`Owner`] that it lost the session, and tells the device. The session
//! itself may be gone or belong to another connection by then.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

/// Identifies the connection that owns a session. Two are equal only if one is a clone of the other.
#[derive(Debug, Clone, Default)]
pub(in crate::sessions) struct Owner(Arc<Ownership>);

#[derive(Debug, Default)]
struct Ownership {
    changed: Notify,
    /// Set when the connection loses the session, unless it ended by itself.
    loss: OnceLock<SessionLoss>,
}

/// The reasons for which an open connection loses its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionLoss {
    /// Another connection of the device took it or began a new one.
    TakenOver,
    /// The app was removed. A later app may have its name.
    AppRemoved,
    /// The device was removed. A later device may have its client id.
    DeviceRemoved,
    /// The key that signed its token has ended.
    KeyEnded,
}

impl Owner {
    /// Resolves when there may be something to send, or when the session may be lost.
    pub(in crate::sessions) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Returns the reason for which it lost the session, if it did.
    pub(in crate::sessions) fn loss(&self) -> Option<SessionLoss> {
        self.0.loss.get().copied()
    }

    pub(super) fn notify(&self) {
        self.0.changed.notify_one();
    }

    /// Notes that it lost the session. The first reason stays.
    pub(super) fn lose(&self, loss: SessionLoss) {
        let _ = self.0.loss.set(loss);
        self.notify();
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
