//! The attributes that an app declares for its devices.

use std::sync::Arc;

use axum::extract::State;
use push_model::{
    custom::{AttributeName, ValueType},
    ids::AppId,
};
use push_operator::app::attributes::{self, AttributeRemoved, AttributeView};
use serde::{Deserialize, Serialize};

use super::{
    answer::{Answer, Result},
    input::{Given, Named},
};
use crate::{access::Caller, core::Core};

/// The attributes of an app.
#[derive(Debug, Serialize)]
pub(super) struct AttributeList {
    attributes: Vec<AttributeView>,
}

/// A new attribute.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    name: AttributeName,
    #[serde(rename = "type")]
    value_type: ValueType,
}

pub(super) async fn list(
    State(core): State<Arc<Core>>,
    Named(app_id): Named<AppId>,
) -> Result<AttributeList> {
    Ok(Answer(AttributeList { attributes: attributes::list(core.index(), &app_id).await? }))
}

pub(super) async fn add(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named(app_id): Named<AppId>,
    Given(New { name, value_type }): Given<New>,
) -> Result<AttributeView> {
    let (actor, app) = (caller.actor()?, caller.target(&app_id));
    Ok(Answer(attributes::add(core.index(), &actor, app, name, value_type).await?))
}

pub(super) async fn remove(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, name)): Named<(AppId, String)>,
) -> Result<AttributeRemoved> {
    let (actor, app) = (caller.actor()?, caller.target(&app_id));
    Ok(Answer(attributes::remove(core.index(), &actor, app, &name).await?))
}
