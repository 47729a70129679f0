//! Keys of the admin API.

use std::sync::Arc;

use axum::extract::State;
use push_model::{
    admin_key::Role,
    ids::{AppId, SecretName},
};
use push_operator::admin_key::{self, AdminKeyRevoked, AdminKeyView, NewAdminKey};
use serde::{Deserialize, Serialize};

use super::{
    answer::{Answer, Result},
    input::{Given, Named},
};
use crate::{access::Caller, core::Core};

/// The keys, without their texts.
#[derive(Debug, Serialize)]
pub(super) struct KeyList {
    keys: Vec<AdminKeyView>,
}

/// A new key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    name: SecretName,
    role: Role,
    #[serde(default)]
    app_id: Option<AppId>,
}

pub(super) async fn list(State(core): State<Arc<Core>>) -> Result<KeyList> {
    Ok(Answer(KeyList { keys: admin_key::list(core.index()).await? }))
}

pub(super) async fn add(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Given(New { name, role, app_id }): Given<New>,
) -> Result<NewAdminKey> {
    Ok(Answer(admin_key::add(core.index(), &caller.actor()?, name, role, app_id).await?))
}

pub(super) async fn revoke(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named(name): Named<SecretName>,
) -> Result<AdminKeyRevoked> {
    Ok(Answer(admin_key::revoke(core.index(), &caller.actor()?, name).await?))
}
