//! The secrets of an app. A new one is shown once, in the answer that makes it.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use push_model::{
    app::{Scope, Scopes},
    ids::{AppId, SecretName},
    secret::Secret,
    time::UnixMillis,
};
use push_operator::app::{
    self, NewSecret, SecretView,
    secrets::{self, SecretRevoked},
};
use serde::{Deserialize, Serialize};

use super::{
    answer::{Answer, Result},
    input::{Given, Named},
};
use crate::{
    access::{Caller, Refused},
    core::Core,
};

/// The secrets of an app, without their texts.
#[derive(Debug, Serialize)]
pub(super) struct SecretList {
    secrets: Vec<SecretView>,
}

/// A new secret.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    name: SecretName,
    scopes: Vec<String>,
    #[serde(default)]
    expires_at: Option<UnixMillis>,
}

impl New {
    /// The calls that it is to be valid for.
    fn scopes(&self) -> std::result::Result<Scopes, Refused> {
        let scopes = self.scopes.iter().map(|name| name.parse::<Scope>());
        let scopes = scopes.collect::<std::result::Result<Scopes, _>>();
        scopes.map_err(|wrong| Refused::Invalid(format!("scopes: {wrong}")))
    }
}

/// The replacement of the default secret.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rotation {
    /// For how long the old one stays valid.
    #[serde(default)]
    overlap_seconds: u64,
}

pub(super) async fn list(
    State(core): State<Arc<Core>>,
    Named(app_id): Named<AppId>,
) -> Result<SecretList> {
    Ok(Answer(SecretList { secrets: secrets::list(core.index(), &app_id).await? }))
}

pub(super) async fn add(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named(app_id): Named<AppId>,
    Given(new): Given<New>,
) -> Result<NewSecret> {
    let scopes = new.scopes()?;
    if new.expires_at.is_some_and(|at| at <= UnixMillis::now()) {
        return Err(Refused::Invalid("expires_at: must be in the future".to_owned()));
    }
    let (actor, app, secret) = (caller.actor()?, caller.target(&app_id), Secret::generate());
    let New { name, expires_at, .. } = new;
    let added = secrets::add(core.index(), &actor, app, name, secret, scopes, expires_at).await?;
    Ok(Answer(added))
}

pub(super) async fn revoke(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, name)): Named<(AppId, SecretName)>,
) -> Result<SecretRevoked> {
    let (actor, app) = (caller.actor()?, caller.target(&app_id));
    Ok(Answer(secrets::revoke(core.index(), &actor, app, name, None).await?))
}

pub(super) async fn rotate(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named(app_id): Named<AppId>,
    Given(Rotation { overlap_seconds }): Given<Rotation>,
) -> Result<NewSecret> {
    let (actor, app, secret) = (caller.actor()?, caller.target(&app_id), Secret::generate());
    let overlap = Duration::from_secs(overlap_seconds);
    Ok(Answer(app::rotate_secret(core.index(), &actor, app, secret, overlap).await?))
}
