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
    AppRef, change_app, event_of_secret, find,
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
    app: impl Into<AppRef<'_>>,
    name: SecretName,
    secret: Secret,
    scopes: Scopes,
    expires_at: Option<UnixMillis>,
) -> anyhow::Result<NewSecret> {
    let app: AppRef<'_> = app.into();
    let event = event_of_secret(actor, Action::SecretAdded, app.id, name.as_str());
    let work = async {
        let add = |record: &mut App| {
            Ok(record.add_secret(name.clone(), &secret, scopes, UnixMillis::now(), expires_at)?)
        };
        let changed = change_app(index, app, add).await?;
        Ok(NewSecret::new(&changed, name.as_str(), secret.clone()))
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

/// Removes a secret; with `made_at`, only the one that was made then. `ingest` stops accepting it within 5 s while it
/// reaches the index.
///
/// # Errors
/// If there is no such app here or no such secret, the index did not answer, or it was not recorded.
pub async fn revoke(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    name: SecretName,
    made_at: Option<UnixMillis>,
) -> anyhow::Result<SecretRevoked> {
    let app: AppRef<'_> = app.into();
    let event = event_of_secret(actor, Action::SecretRevoked, app.id, name.as_str());
    let work = async {
        let revoke = |record: &mut App| {
            let another = record.secrets.iter().find(|named| named.name == name);
            if another.is_some_and(|named| made_at.is_some_and(|at| at != named.made_at)) {
                bail!(Refusal::Conflict(format!(
                    "the secret {name} was revoked, and there is a new one of this name: nothing was done"
                )));
            }
            if record.revoke_secret(&name) {
                return Ok(());
            }
            bail!(Refusal::Missing(format!(
                "{} has no named secret {name} (the default one is replaced with pushctl app \
                 rotate-secret)",
                app.id
            )))
        };
        change_app(index, app, revoke).await?;
        Ok(SecretRevoked { app_id: app.id.clone(), revoked: name.clone() })
    };
    recorded(Some(index), event, work).await
}
