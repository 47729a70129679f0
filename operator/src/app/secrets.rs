//! The named secrets of an app, each for a part of the HTTP API.

use anyhow::bail;
use push_index::Index;
use push_model::{
    app::{App, Scopes},
    audit::Action,
    ids::{AppId, SecretName},
    secret::Secret,
    time::UnixMillis,
};
use serde::Serialize;

use super::{
    change_app, event_of_secret, find,
    views::{NewSecret, SecretView, secret_views},
};
use crate::{
    audit::{Actor, recorded},
    refusal::Refusal,
};

/// Names a secret that is no longer valid.
#[derive(Debug, Clone, Serialize)]
pub struct SecretRevoked {
    /// The app.
    pub app_id: AppId,
    /// The secret.
    pub revoked: SecretName,
}

/// Adds a secret; without `expires_at` it never expires.
///
/// # Errors
/// If there is no such app here, the secret cannot be added, the index did not answer, or it was not
/// recorded.
pub async fn add(
    index: &dyn Index,
    actor: &Actor,
    app_id: &AppId,
    name: SecretName,
    secret: Secret,
    scopes: Scopes,
    expires_at: Option<UnixMillis>,
) -> anyhow::Result<NewSecret> {
    let event = event_of_secret(actor, Action::SecretAdded, app_id, name.as_str());
    let work = async {
        let add = |app: &mut App| {
            Ok(app.add_secret(name.clone(), &secret, scopes, UnixMillis::now(), expires_at)?)
        };
        let app = change_app(index, app_id, add).await?;
        Ok(NewSecret::new(&app, name.as_str(), secret.clone()))
    };
    recorded(Some(index), event, work).await
}

/// Lists the secrets, the default one among them.
///
/// # Errors
/// If there is no such app, or the index did not answer.
pub async fn list(index: &dyn Index, app_id: &AppId) -> anyhow::Result<Vec<SecretView>> {
    let app = find(index, app_id).await?;
    let uses = index.secret_uses(&(&app).into()).await?;
    Ok(secret_views(&app, &uses, UnixMillis::now()))
}

/// Removes a secret. `ingest` stops accepting it within 5 s while it reaches the index.
///
/// # Errors
/// If there is no such app here or no such secret, the index did not answer, or it was not recorded.
pub async fn revoke(
    index: &dyn Index,
    actor: &Actor,
    app_id: &AppId,
    name: SecretName,
) -> anyhow::Result<SecretRevoked> {
    let event = event_of_secret(actor, Action::SecretRevoked, app_id, name.as_str());
    let work = async {
        let revoke = |app: &mut App| {
            if app.revoke_secret(&name) {
                return Ok(());
            }
            bail!(Refusal::Missing(format!(
                "{app_id} has no named secret {name} (the default one is replaced with pushctl app \
                 rotate-secret)"
            )))
        };
        change_app(index, app_id, revoke).await?;
        Ok(SecretRevoked { app_id: app_id.clone(), revoked: name.clone() })
    };
    recorded(Some(index), event, work).await
}
