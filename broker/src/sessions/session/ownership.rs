//! Which connection owns a session, and why one that owned it does so no longer.
//!
//! A connection learns from its own part of this that it has lost the session, and tells the device:
//! the session itself may be gone or be another connection's by then.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

/// Identifies the connection that owns a session. Two are equal only if one is a clone of the other.
#[derive(Debug, Clone, Default)]
pub(in crate::sessions) struct Owner(Arc<Ownership>);

#[derive(Debug, Default)]
struct Ownership {
    changed: Notify,
    /// Set once the connection owns the session no longer, unless it ended by itself.
    loss: OnceLock<SessionLoss>,
}

/// Why a connection that is open owns its session no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionLoss {
    /// Another connection of the device has it now, or has begun a new one.
    TakenOver,
    /// The app of its device was removed. There may be a later app of that name.
    AppRemoved,
    /// Its device was removed. There may be a later one of that client id.
    DeviceRemoved,
    /// The key that signed its token has ended.
    KeyEnded,
}

impl Owner {
    /// Resolves when there may be something to send, or when the session may be lost.
    pub(in crate::sessions) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Why it owns the session no longer, if that is so.
    pub(in crate::sessions) fn loss(&self) -> Option<SessionLoss> {
        self.0.loss.get().copied()
    }

    pub(super) fn notify(&self) {
        self.0.changed.notify_one();
    }

    /// It owns the session no longer. The first reason counts.
    pub(super) fn lose(&self, loss: SessionLoss) {
        let _ = self.0.loss.set(loss);
        self.notify();
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
