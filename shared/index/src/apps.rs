//! Apps and their paces.

use async_trait::async_trait;
use push_model::{
    app::{App, AppKey},
    ids::AppId,
    pace::{Acquire, Grant},
};

use crate::IndexError;

/// The apps.
#[async_trait]
pub trait Apps: Send + Sync {
    /// Stores a new app. False if there is one with this id, which is left as it is. The new app's
    /// generation is the one that the index has counted, whatever the record says.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn create_app(&self, app: &App) -> Result<bool, IndexError>;

    /// Replaces the record of an app. False if there is none, or one of another generation.
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

/// How fast all workers together send to the devices of an app.
#[async_trait]
pub trait Pacing: Send + Sync {
    /// Acquires a batch's devices from the app's pace, all or none, in one atomic step
    /// ([`push_model::pace`]). For an app that does not exist the engine need not store anything.
    ///
    /// # Errors
    /// If the index did not answer; the devices may have been acquired all the same.
    async fn acquire_pace(&self, app: &AppKey, request: &Acquire) -> Result<Grant, IndexError>;
}
