//! The audit trail.

use async_trait::async_trait;
use push_model::audit::AuditEvent;
use push_store::IndexError;

/// A bounded list of what operators did. It is in the index because every program of operators
/// reaches that, from any machine. Calls of producers are not in it: a tenant could make so many of
/// them that the actions of operators would be evicted. For the same reason the admin API bounds the
/// changes with keys of one app.
#[async_trait]
pub trait AuditTrail: Send + Sync {
    /// Appends an event, and keeps the newest `keep`.
    ///
    /// # Errors
    /// If the index did not answer; the event may have been appended all the same.
    async fn append_audit(&self, event: &AuditEvent, keep: usize) -> Result<(), IndexError>;

    /// The newest events, the newest first, at most `limit`. Unreadable events are left out.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn audit(&self, limit: usize) -> Result<Vec<AuditEvent>, IndexError>;
}
