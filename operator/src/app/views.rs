//! Apps and their secrets as operators see them.

use std::{collections::BTreeMap, num::NonZeroU32};

use push_index::Index;
use push_model::{
    app::{App, AppQuota, DEFAULT_SECRET, Scopes},
    ids::AppId,
    secret::Secret,
    time::UnixMillis,
    transfer::MovedTo,
    usage::Usage,
};
use serde::{Serialize, Serializer};

use super::attributes::{AttributeView, views};

/// An app without its secrets.
#[derive(Debug, Clone, Serialize)]
pub struct AppView {
    /// The app.
    pub app_id: AppId,
    /// True if its pushes are refused.
    pub disabled: bool,
    /// Pushes a second; none for no limit.
    pub rate_limit: Option<NonZeroU32>,
    /// Devices a second that all workers together send to; none for no limit.
    pub pace: Option<NonZeroU32>,
    /// The number of its devices.
    pub devices: u64,
    /// The most devices.
    pub max_devices: AppQuota,
    /// The most messages that may wait.
    pub max_waiting: AppQuota,
    /// The most ledger entries of its messages.
    pub max_ledger_entries: AppQuota,
    /// When it was made.
    pub created_at: UnixMillis,
    /// The store that it went to, if it is not in service here any more.
    pub moved_to: Option<MovedTo>,
    /// The end of the validity of the default secret before the last rotation.
    pub previous_secret_valid_until: Option<UnixMillis>,
}

/// An app, with its secrets and what it uses of its quotas.
#[derive(Debug, Clone, Serialize)]
pub struct AppDetails {
    /// The app.
    #[serde(flatten)]
    pub app: AppView,
    /// Its secrets.
    pub secrets: Vec<SecretView>,
    /// The use by its messages; none if it has no quota of messages, because nothing is counted then.
    pub usage: Option<AppUsage>,
    /// The attributes of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<AttributeView>,
}

/// A secret, without its text.
#[derive(Debug, Clone, Serialize)]
pub struct SecretView {
    /// Its name.
    pub name: String,
    /// The calls that it is valid for.
    pub scopes: Scopes,
    /// False once it has expired.
    pub valid: bool,
    /// When it was made; none if that is unknown.
    pub made_at: Option<UnixMillis>,
    /// When it expires; none for never.
    pub expires_at: Option<UnixMillis>,
    /// When it was last used, as far as the index knows.
    pub last_used_at: Option<UnixMillis>,
}

/// The use of an app's quotas by its messages.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct AppUsage {
    /// Messages that wait.
    pub waiting: u64,
    /// Ledger entries.
    pub ledger_entries: u64,
    /// Entries of messages that were recalled before a worker began them.
    pub early_recalls: u64,
}

/// A new secret. Its text is not shown again.
#[derive(Debug, Clone, Serialize)]
pub struct NewSecret {
    /// The app.
    pub app_id: AppId,
    /// Its name; none for the default secret, as it is the only one of most apps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its text.
    #[serde(serialize_with = "exposed")]
    pub secret: Secret,
}

fn exposed<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

/// Names an app that is gone.
#[derive(Debug, Clone, Serialize)]
pub struct AppRemoved {
    /// The app.
    pub removed: AppId,
}

/// Says if an app is in service.
#[derive(Debug, Clone, Serialize)]
pub struct AppState {
    /// The app.
    pub app_id: AppId,
    /// True if its pushes are refused.
    pub disabled: bool,
    /// The store that it had moved to, if it was taken back into service nevertheless. Changes that were
    /// made there since are not here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub had_moved_to: Option<MovedTo>,
}

impl AppView {
    pub(super) fn of(app: &App, devices: u64) -> Self {
        Self {
            app_id: app.app_id.clone(),
            disabled: app.disabled,
            rate_limit: app.rate_limit,
            pace: app.pace,
            devices,
            max_devices: app.max_devices,
            max_waiting: app.max_waiting,
            max_ledger_entries: app.max_ledger_entries,
            created_at: app.created_at,
            moved_to: app.moved_to.clone(),
            previous_secret_valid_until: app.previous.as_ref().map(|p| p.valid_until),
        }
    }

    /// Returns `enabled`, `disabled` or `moved`.
    pub fn state(&self) -> &'static str {
        match (&self.moved_to, self.disabled) {
            (Some(_), _) => "moved",
            (None, true) => "disabled",
            (None, false) => "enabled",
        }
    }
}

impl AppDetails {
    pub(super) async fn read(index: &dyn Index, app: &App) -> anyhow::Result<Self> {
        let key = app.into();
        let devices = index.count_devices(&key).await?;
        let uses = index.secret_uses(&key).await?;
        let hours = index.usage(&key).await?;
        let now = UnixMillis::now();
        let usage = (!hours.is_empty()).then(|| {
            let Usage { waiting, entries, early_recalls, .. } = Usage::of(&hours, now);
            AppUsage { waiting, ledger_entries: entries, early_recalls }
        });
        let secrets = secret_views(app, &uses, now);
        Ok(Self { app: AppView::of(app, devices), secrets, usage, attributes: views(app) })
    }
}

impl NewSecret {
    pub(super) fn new(app: &App, name: &str, secret: Secret) -> Self {
        let name = (name != DEFAULT_SECRET).then(|| name.to_owned());
        Self { app_id: app.app_id.clone(), name, secret }
    }
}

/// Returns the secrets of an app, with what the index knows of their last uses.
pub(super) fn secret_views(
    app: &App,
    uses: &BTreeMap<String, UnixMillis>,
    now: UnixMillis,
) -> Vec<SecretView> {
    let secrets = app.all_secrets().map(|secret| {
        // A use before the secret was made is one of an earlier secret of that name.
        let used_at = uses.get(secret.name).copied();
        let used_at = used_at.filter(|used_at| secret.made_at.is_none_or(|made| made <= *used_at));
        SecretView {
            name: secret.name.to_owned(),
            scopes: secret.scopes,
            valid: secret.is_valid(now),
            made_at: secret.made_at,
            expires_at: secret.expires_at,
            last_used_at: used_at,
        }
    });
    secrets.collect()
}
