//! The list of the broadcasts that are not finished.

use async_trait::async_trait;
use push_model::{ids::MessageId, open_broadcast::OpenBroadcast};
use push_store::IndexError;

/// The most broadcasts in the list, so that reading it stays one small request. One more is not
/// listed.
pub const MAX_LISTED: usize = 1000;

/// The devices that are left of the broadcasts in work ([`push_model::open_broadcast`]). The list
/// is part of the ledger.
///
/// Nothing that is promised depends on the list, so no call is repeated: a call that is lost leaves
/// a number that is out of date, or a broadcast that is listed until its closing check.
#[async_trait]
pub trait OpenBroadcasts: Send + Sync {
    /// Adds a broadcast, unless it is listed or [`MAX_LISTED`] others are.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn list_broadcast(&self, broadcast: &OpenBroadcast) -> Result<(), IndexError>;

    /// Sets how many devices are left of a partition, if the broadcast is listed. A broadcast
    /// without devices left is taken off.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn set_devices_left(
        &self,
        message: &MessageId,
        partition: u32,
        left: u32,
    ) -> Result<(), IndexError>;

    /// Takes a broadcast off, if it is listed: it ended, or was recalled.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn unlist_broadcast(&self, message: &MessageId) -> Result<(), IndexError>;

    /// The list, in one request. Entries that this version cannot read are left out.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn open_broadcasts(&self) -> Result<Vec<OpenBroadcast>, IndexError>;
}
