//! The app that a use case is about.

use anyhow::bail;
use push_index::Index;
use push_model::{
    app::{App, AppKey},
    ids::AppId,
};

use super::{check_not_arriving, no_app};
use crate::refusal::Refusal;

/// An app by its name. With a generation, a later app of the name is refused: its caller has seen or may change the
/// earlier one alone.
#[derive(Debug, Clone, Copy)]
pub struct AppRef<'a> {
    /// The name.
    pub id: &'a AppId,
    /// The number of apps of this name that were removed before it; none for whichever has the name now.
    pub generation: Option<u64>,
}

impl<'a> From<&'a AppId> for AppRef<'a> {
    fn from(id: &'a AppId) -> Self {
        Self { id, generation: None }
    }
}

impl<'a> From<&'a AppKey> for AppRef<'a> {
    fn from(AppKey { id, generation }: &'a AppKey) -> Self {
        Self { id, generation: Some(*generation) }
    }
}

impl AppRef<'_> {
    /// Refuses another app of the name.
    ///
    /// # Errors
    /// If `app` is one.
    pub fn check(self, app: &App) -> Result<(), Refusal> {
        if self.generation.is_none_or(|generation| generation == app.generation) {
            return Ok(());
        }
        Err(Refusal::Conflict(format!(
            "the app {} was removed, and there is a new one of this name: nothing was done. Open the new one first",
            self.id
        )))
    }
}

/// Finds an app.
///
/// # Errors
/// If there is no such app, another has its name, or the index did not answer.
pub(crate) async fn find(index: &dyn Index, app: impl Into<AppRef<'_>>) -> anyhow::Result<App> {
    let app = app.into();
    if let Some(found) = index.app(app.id).await? {
        app.check(&found)?;
        return Ok(found);
    }
    check_not_arriving(index, app.id).await?;
    bail!(no_app(app.id))
}
