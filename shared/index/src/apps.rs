//! Apps, their paces, and the last uses of their secrets.

use std::collections::BTreeMap;

use async_trait::async_trait;
use push_model::{
    app::{App, AppKey},
    ids::AppId,
    pace::{Acquire, Grant},
    time::UnixMillis,
};
use push_store::IndexError;

/// Age in milliseconds at which the last use of a secret may be dropped by a caller that does not
/// know the secret: an hour before the latest use that it knows.
const FORGET_USE_AFTER: u64 = 3_600_000;

/// The apps.
#[async_trait]
pub trait Apps: Send + Sync {
    /// Stores a new app. False if there is one with this id, which is left as it is. The new app's
    /// generation is the one that the index has counted, whatever the record says.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn create_app(&self, app: &App) -> Result<bool, IndexError>;

    /// Replaces the record of an app that was read before. False if there is none, one of another
    /// generation, or one that was changed since ([`App::revision`]): read it again then. The
    /// stored record has the next revision.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn update_app(&self, app: &App) -> Result<bool, IndexError>;

    /// One app.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn app(&self, app: &AppId) -> Result<Option<App>, IndexError>;

    /// Every app, by id.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn apps(&self) -> Result<Vec<App>, IndexError>;

    /// Removes an app and all its devices. False if there was none. The next app of its name has
    /// the next generation.
    ///
    /// # Errors
    /// If the index did not answer; the app is disabled or removed then, and another call finishes
    /// the removal.
    async fn remove_app(&self, app: &AppId) -> Result<bool, IndexError>;
}

/// When the secrets of an app were last used. It serves the operator only and may be lost or late.
#[async_trait]
pub trait SecretUses: Send + Sync {
    /// Saves the last uses of all secrets that an app has, by name; none for one without a use that the
    /// caller knows of. A time before the saved one changes nothing. Uses under other names are deleted once
    /// they are an hour older than the latest of these uses: the caller's record may be so old that it lacks
    /// a secret that was just added. Nothing is saved for a removed app.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn save_secret_uses(
        &self,
        app: &AppKey,
        uses: &[(&str, Option<UnixMillis>)],
    ) -> Result<(), IndexError>;

    /// When each secret of an app was last used, by name.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn secret_uses(&self, app: &AppKey) -> Result<BTreeMap<String, UnixMillis>, IndexError>;
}

/// The pace at which all workers together send to the devices of an app.
#[async_trait]
pub trait Pacing: Send + Sync {
    /// Acquires a batch's devices from the app's pace, all or none, in one atomic step
    /// ([`push_model::pace`]). For an app that does not exist the engine need not store anything.
    ///
    /// # Errors
    /// If the index did not answer; the devices may have been acquired all the same.
    async fn acquire_pace(&self, app: &AppKey, request: &Acquire) -> Result<Grant, IndexError>;
}

/// Last uses before this time go if their secrets are not among these.
pub(crate) fn forget_uses_before(uses: &[(&str, Option<UnixMillis>)]) -> UnixMillis {
    let latest = uses.iter().filter_map(|(_, used_at)| *used_at).max().unwrap_or_default();
    UnixMillis(latest.0.saturating_sub(FORGET_USE_AFTER))
}
