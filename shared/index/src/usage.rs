//! The use of apps' quotas of messages.

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    time::UnixMillis,
    usage::{UsageCounts, UsageHour},
};
use push_store::IndexError;

/// The counts behind the quotas of messages ([`push_model::usage`]). They are kept beside the records of
/// the apps.
#[async_trait]
pub trait MessageUsage: Send + Sync {
    /// Adds counts to hours of an app, and gives all of its hours. Hours that are over are dropped now
    /// and then. Nothing is kept for a removed app.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn add_usage(
        &self,
        app: &AppKey,
        more: &[(UsageHour, UsageCounts)],
        now: UnixMillis,
    ) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError>;

    /// The hours of an app.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn usage(&self, app: &AppKey) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError>;
}
