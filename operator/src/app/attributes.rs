//! The attributes that an app declares for its devices.

use anyhow::{Context as _, bail};
use push_index::Index;
use push_model::{
    app::App,
    audit::Action,
    custom::{AttributeName, Declaration, NotDeclared, ValueType},
    ids::AppId,
};
use serde::Serialize;

use super::{AppRef, change_app, find};
use crate::{
    audit::{Actor, recorded},
    refusal::Refusal,
};

/// An attribute of an app's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttributeView {
    /// Its name.
    pub name: AttributeName,
    /// The type of its values.
    #[serde(rename = "type")]
    pub value_type: ValueType,
}

/// Names an attribute that is no longer declared.
#[derive(Debug, Clone, Serialize)]
pub struct AttributeRemoved {
    /// The app.
    pub app_id: AppId,
    /// The attribute.
    pub removed: String,
}

impl From<&Declaration> for AttributeView {
    fn from(declared: &Declaration) -> Self {
        Self { name: declared.name.clone(), value_type: declared.value_type }
    }
}

/// Returns the attributes of an app's record.
pub fn views(app: &App) -> Vec<AttributeView> {
    app.attributes.iter().map(AttributeView::from).collect()
}

/// Declares an attribute. Devices can have it as soon as `ingest` has read the app's record again: within 5 s.
///
/// # Errors
/// If there is no such app here, it has an attribute of this name or no room for another, the index did not
/// answer, or it was not recorded.
pub async fn add(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    name: AttributeName,
    value_type: ValueType,
) -> anyhow::Result<AttributeView> {
    let app: AppRef<'_> = app.into();
    let declare = |record: &mut App| match record.attributes.add(name.clone(), value_type) {
        Ok(_) => Ok(()),
        Err(NotDeclared::Exists) => bail!(Refusal::Conflict(NotDeclared::Exists.to_string())),
        Err(full) => bail!(Refusal::Conflict(full.to_string())),
    };
    let work = async {
        let changed = change_app(index, app, declare).await?;
        let declared = changed.attributes.find(name.as_str());
        declared.map(AttributeView::from).context("the attribute was removed in the same moment")
    };
    recorded(Some(index), actor.event_of_app(Action::AttributeAdded, app.id), work).await
}

/// Lists the attributes.
///
/// # Errors
/// If there is no such app, or the index did not answer.
pub async fn list(index: &dyn Index, app_id: &AppId) -> anyhow::Result<Vec<AttributeView>> {
    Ok(views(&find(index, app_id).await?))
}

/// Takes an attribute away, with the values that devices have of it. A later attribute of its name begins without
/// values.
///
/// # Errors
/// If there is no such app here or no such attribute, the index did not answer, or it was not recorded.
pub async fn remove(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    name: &str,
) -> anyhow::Result<AttributeRemoved> {
    let app: AppRef<'_> = app.into();
    let remove = |record: &mut App| match record.attributes.remove(name) {
        Some(_) => Ok(()),
        None => bail!(Refusal::Missing(format!("{} declares no attribute {name}", app.id))),
    };
    let work = async {
        let changed = change_app(index, app, remove).await?;
        Ok(AttributeRemoved { app_id: changed.app_id, removed: name.to_owned() })
    };
    recorded(Some(index), actor.event_of_app(Action::AttributeRemoved, app.id), work).await
}
