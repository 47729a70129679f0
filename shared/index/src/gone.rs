//! Devices that providers reported as gone: the counts behind the limit of their removals, and the list
//! of those that were removed.

use std::time::Duration;

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    gone::{GoneReports, RemovedDevice},
    time::UnixMillis,
};

use push_store::IndexError;

/// A part of the list of removed devices, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RemovedPage {
    /// The devices; may be empty although the list goes on.
    pub devices: Vec<RemovedDevice>,
    /// Where the next part begins; none at the end of the list.
    pub next: Option<usize>,
}

/// The gone devices of an app ([`push_model::gone`]). They are removed by
/// [`Devices::remove_devices`](crate::Devices::remove_devices), which lists them here. These records are
/// deleted with the app, and none is kept for a removed app.
#[async_trait]
pub trait GoneDevices: Send + Sync {
    /// Adds to the number of an app's devices that were reported as gone, and returns what was reported within
    /// the window that ends now, in one atomic step.
    ///
    /// # Errors
    /// If the index did not answer; the devices may have been counted all the same.
    async fn count_gone(
        &self,
        app: &AppKey,
        reported: u64,
        window: Duration,
        now: UnixMillis,
    ) -> Result<GoneReports, IndexError>;

    /// Notes that removals are stopped until a time. False if another program changed that since it was
    /// `before`.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn stop_removals(
        &self,
        app: &AppKey,
        before: Option<UnixMillis>,
        until: UnixMillis,
    ) -> Result<bool, IndexError>;

    /// Returns until when removals are stopped, or were at last; none if that is long ago.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn removals_stopped_until(&self, app: &AppKey) -> Result<Option<UnixMillis>, IndexError>;

    /// Lists devices that were removed as gone at a time or later, the newest first. Reads at most `limit`
    /// devices, from this place in the list on. While others are added, a device may be in two parts.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn removed_devices(
        &self,
        app: &AppKey,
        since: UnixMillis,
        from: usize,
        limit: usize,
    ) -> Result<RemovedPage, IndexError>;
}
