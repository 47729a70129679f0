//! The keys of the admin API: adding, listing, revoking and checking them.

use anyhow::bail;
use push_index::{AdminKeyAdded, Index};
use push_model::{
    admin_key::{
        AdminKey, AdminKeyText, KeyDigest, MAX_ADMIN_KEYS, Role, UsedAdminKey, hour_of_use,
    },
    app::AppKey,
    audit::{Action, AuditEvent},
    ids::{AppId, SecretName},
    time::UnixMillis,
};
use push_store::IndexError;
use serde::{Serialize, Serializer};

use crate::{
    app,
    audit::{Actor, recorded},
    refusal::Refusal,
};

/// A key that was made. Its `Debug` form leaves out the key.
#[derive(Debug, Serialize)]
pub struct NewAdminKey {
    /// Its name.
    pub name: SecretName,
    /// Its rights.
    pub role: Role,
    /// The only app that it opens; none for all.
    pub app_id: Option<AppId>,
    /// The key, which is shown once.
    #[serde(serialize_with = "exposed")]
    pub key: AdminKeyText,
}

/// A key as operators see it.
#[derive(Debug, Clone, Serialize)]
pub struct AdminKeyView {
    /// Its name.
    pub name: SecretName,
    /// Its rights.
    pub role: Role,
    /// The only app that it opens; none for all.
    pub app_id: Option<AppId>,
    /// When it was made.
    pub made_at: UnixMillis,
    /// The hour of its last use; none if it was not used.
    pub last_used_at: Option<UnixMillis>,
}

impl From<UsedAdminKey> for AdminKeyView {
    fn from(UsedAdminKey { key, last_used_at }: UsedAdminKey) -> Self {
        let AdminKey { name, role, app, made_at, .. } = key;
        Self { name, role, app_id: app, made_at, last_used_at }
    }
}

/// Names a key that opens nothing any more.
#[derive(Debug, Clone, Serialize)]
pub struct AdminKeyRevoked {
    /// The key.
    pub revoked: SecretName,
}

fn exposed<S: Serializer>(key: &AdminKeyText, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(key.expose())
}

fn event(actor: &Actor, action: Action, name: &SecretName, app: Option<&AppId>) -> AuditEvent {
    AuditEvent { admin_key: Some(name.clone()), app: app.cloned(), ..actor.event(action) }
}

/// Makes a key. With an app, it opens that app alone, and no later app of its name.
///
/// # Errors
/// If there is a key of this name, there are too many, there is no such app, the index did not answer, or it was
/// not recorded.
pub async fn add(
    index: &dyn Index,
    actor: &Actor,
    name: SecretName,
    role: Role,
    app_id: Option<AppId>,
) -> anyhow::Result<NewAdminKey> {
    let event = event(actor, Action::AdminKeyAdded, &name, app_id.as_ref());
    let work = async {
        let app = match &app_id {
            Some(app_id) => Some(AppKey::from(&app::find(index, app_id).await?)),
            None => None,
        };
        let key = AdminKeyText::generate();
        let stored = AdminKey {
            name: name.clone(),
            role,
            app: app_id.clone(),
            generation: app.map_or(0, |app| app.generation),
            made_at: UnixMillis::now(),
            sha256: KeyDigest::of(&key),
        };
        match index.add_admin_key(&stored).await? {
            AdminKeyAdded::Added => Ok(NewAdminKey { name: name.clone(), role, app_id, key }),
            AdminKeyAdded::NameTaken => bail!(Refusal::Conflict(format!(
                "there is a key named {name} already: revoke it first, or choose another name"
            ))),
            AdminKeyAdded::TooMany => bail!(Refusal::Conflict(format!(
                "there are {MAX_ADMIN_KEYS} keys already: revoke one first"
            ))),
        }
    };
    recorded(Some(index), event, work).await
}

/// Lists the keys.
///
/// # Errors
/// If the index did not answer.
pub async fn list(index: &dyn Index) -> anyhow::Result<Vec<AdminKeyView>> {
    Ok(index.admin_keys().await?.into_iter().map(AdminKeyView::from).collect())
}

/// Revokes a key, which opens nothing from that moment on.
///
/// # Errors
/// If there is no such key, the index did not answer, or it was not recorded.
pub async fn revoke(
    index: &dyn Index,
    actor: &Actor,
    name: SecretName,
) -> anyhow::Result<AdminKeyRevoked> {
    let event = event(actor, Action::AdminKeyRevoked, &name, None);
    let work = async {
        if !index.remove_admin_key(&name).await? {
            bail!(Refusal::Missing(format!("there is no key named {name}")));
        }
        Ok(AdminKeyRevoked { revoked: name.clone() })
    };
    recorded(Some(index), event, work).await
}

/// Finds the key that a caller presents. None if there is none, or its app was removed.
///
/// # Errors
/// If the index did not answer.
pub async fn verify(index: &dyn Index, presented: &[u8]) -> Result<Option<AdminKey>, IndexError> {
    match KeyDigest::of_presented(presented) {
        Some(digest) => find(index, &digest).await,
        None => Ok(None),
    }
}

/// Finds the key with this digest. None if there is none, or its app was removed.
///
/// # Errors
/// If the index did not answer.
pub async fn find(index: &dyn Index, digest: &KeyDigest) -> Result<Option<AdminKey>, IndexError> {
    let found = index.admin_key(digest).await?.filter(|key| key.sha256.is(digest));
    let Some(key) = found else { return Ok(None) };
    match key.app_key() {
        Some(only) => {
            let app = index.app(&only.id).await?;
            Ok(app.filter(|app| AppKey::from(app) == only).map(|_| key))
        }
        None => Ok(Some(key)),
    }
}

/// Notes the hour in which a key was used.
///
/// # Errors
/// If the index did not answer.
pub async fn note_use(
    index: &dyn Index,
    key: &AdminKey,
    now: UnixMillis,
) -> Result<(), IndexError> {
    index.note_admin_key_use(key, hour_of_use(now)).await
}
