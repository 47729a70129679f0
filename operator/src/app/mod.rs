//! Apps: making, changing, listing and removing them, and replacing their default secret.
//!
//! - `accounts`: its accounts at providers
//! - `reference`: the app that a use case is about
//! - `reseal`: sealing all accounts with the newest key
//! - `secrets`: the named secrets of an app
//! - `trial`: trying an account for real
//! - `views`: apps and secrets as operators see them

pub mod accounts;
pub mod attributes;
mod reference;
pub mod reseal;
pub mod secrets;
pub mod trial;
mod views;

use std::{num::NonZeroU32, time::Duration};

use anyhow::bail;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use push_index::Index;
use push_model::{
    app::{App, AppQuota, DEFAULT_SECRET},
    audit::{Action, AuditEvent},
    cursor::StoreList,
    ids::AppId,
    secret::Secret,
    time::UnixMillis,
};
use serde::Serialize;

pub(crate) use self::reference::find;
pub use self::{
    reference::AppRef,
    views::{AppDetails, AppRemoved, AppState, AppUsage, AppView, NewSecret, SecretView},
};
use crate::{
    audit::{Actor, recorded},
    page::PageQuery,
    refusal::Refusal,
};

/// The most tries of a change while other programs change the same app.
const CHANGE_TRIES: usize = 5;

/// Apps of a page that are read at the same time.
const READS: usize = 8;

/// The limits and quotas of a new app.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Pushes a second; none for no limit.
    pub rate_limit: Option<NonZeroU32>,
    /// Devices a second that all workers together send to; none for no limit.
    pub pace: Option<NonZeroU32>,
    /// The most devices.
    pub max_devices: AppQuota,
    /// The most messages that may wait.
    pub max_waiting: AppQuota,
    /// The most ledger entries of its messages.
    pub max_ledger_entries: AppQuota,
}

/// New limits and quotas of an app; what is none stays as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct LimitChanges {
    /// Pushes a second; `Some(None)` removes the limit.
    pub rate_limit: Option<Option<NonZeroU32>>,
    /// Devices a second that all workers together send to; `Some(None)` removes the limit.
    pub pace: Option<Option<NonZeroU32>>,
    /// The most devices.
    pub max_devices: Option<AppQuota>,
    /// The most messages that may wait.
    pub max_waiting: Option<AppQuota>,
    /// The most ledger entries of its messages.
    pub max_ledger_entries: Option<AppQuota>,
}

impl LimitChanges {
    fn apply(self, app: &mut App) {
        app.rate_limit = self.rate_limit.unwrap_or(app.rate_limit);
        app.pace = self.pace.unwrap_or(app.pace);
        app.max_devices = self.max_devices.unwrap_or(app.max_devices);
        app.max_waiting = self.max_waiting.unwrap_or(app.max_waiting);
        app.max_ledger_entries = self.max_ledger_entries.unwrap_or(app.max_ledger_entries);
    }
}

/// Makes an app.
///
/// # Errors
/// If there is an app of this name, the index did not answer, or it was not recorded.
pub async fn create(
    index: &dyn Index,
    actor: &Actor,
    app_id: AppId,
    secret: Secret,
    limits: Limits,
) -> anyhow::Result<NewSecret> {
    let event = actor.event_of_app(Action::AppCreated, &app_id);
    let work = async {
        let mut app = App::new(app_id, &secret, UnixMillis::now());
        app.rate_limit = limits.rate_limit;
        app.pace = limits.pace;
        app.max_devices = limits.max_devices;
        app.max_waiting = limits.max_waiting;
        app.max_ledger_entries = limits.max_ledger_entries;
        if !index.create_app(&app).await? {
            check_not_arriving(index, &app.app_id).await?;
            bail!(Refusal::Conflict(format!("there is an app {} already", app.app_id)));
        }
        Ok(NewSecret::new(&app, DEFAULT_SECRET, secret))
    };
    recorded(Some(index), event, work).await
}

/// Lists all apps, each as [`show`] shows it.
///
/// # Errors
/// If the index did not answer.
pub async fn list(index: &dyn Index) -> anyhow::Result<Vec<AppDetails>> {
    let mut views = Vec::new();
    for app in index.apps().await? {
        views.push(AppDetails::read(index, &app).await?);
    }
    Ok(views)
}

/// A page of apps.
#[derive(Debug, Clone, Serialize)]
pub struct AppPage {
    /// The apps, by id.
    pub apps: Vec<AppDetails>,
    /// The cursor of the next page; absent at the end of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Lists apps page by page, each as [`show`] shows it.
///
/// # Errors
/// If the cursor is not one of this list, or the index did not answer.
pub async fn page(index: &dyn Index, query: PageQuery<'_>) -> anyhow::Result<AppPage> {
    let after = query.place(StoreList::Apps)?;
    let mut apps = index.apps().await?;
    if let Some(after) = after {
        apps.retain(|app| app.app_id.as_str().as_bytes() > &*after);
    }
    let last = apps.get(query.limit.saturating_sub(1)).filter(|_| apps.len() > query.limit);
    let place = last.map(|app| app.app_id.as_str().as_bytes());
    let next_cursor = place.map(|place| query.cursor(StoreList::Apps, place));
    apps.truncate(query.limit);
    let details = stream::iter(apps).map(|app| async move { AppDetails::read(index, &app).await });
    let apps = details.buffered(READS).try_collect().await?;
    Ok(AppPage { apps, next_cursor })
}

/// Shows one app.
///
/// # Errors
/// If there is no such app, or the index did not answer.
pub async fn show(index: &dyn Index, app_id: &AppId) -> anyhow::Result<AppDetails> {
    AppDetails::read(index, &find(index, app_id).await?).await
}

/// Changes limits and quotas of an app. Programs apply them within 5 s, also to what is being sent.
///
/// # Errors
/// If there is no such app here, the index did not answer, or it was not recorded.
pub async fn set(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    changes: LimitChanges,
) -> anyhow::Result<AppDetails> {
    let app: AppRef<'_> = app.into();
    let work = async {
        let change = |record: &mut App| {
            changes.apply(record);
            Ok(())
        };
        let changed = change_app(index, app, change).await?;
        AppDetails::read(index, &changed).await
    };
    recorded(Some(index), actor.event_of_app(Action::AppChanged, app.id), work).await
}

/// Refuses the app's pushes from now on.
///
/// # Errors
/// If there is no such app here, the index did not answer, or it was not recorded.
pub async fn disable(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
) -> anyhow::Result<AppState> {
    let app: AppRef<'_> = app.into();
    let work = async {
        let change = |record: &mut App| {
            record.disabled = true;
            Ok(())
        };
        let App { app_id, disabled, .. } = change_app(index, app, change).await?;
        Ok(AppState { app_id, disabled, had_moved_to: None })
    };
    recorded(Some(index), actor.event_of_app(Action::AppDisabled, app.id), work).await
}

/// Takes the app's pushes again; with `although_moved` also if it moves or has moved to another store.
///
/// # Errors
/// If there is no such app, it has moved, the index did not answer, or it was not recorded.
pub async fn enable(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    although_moved: bool,
) -> anyhow::Result<AppState> {
    let app: AppRef<'_> = app.into();
    let work = async {
        let mut had_moved_to = None;
        let change = |record: &mut App| {
            record.disabled = false;
            had_moved_to = record.moved_to.take();
            match &had_moved_to {
                Some(moved) if !although_moved => bail!(Refusal::Conflict(format!(
                    "{id} moves or has moved from here to {store}: run that move again, which finishes \
                     it, and then bring the app back with pushctl move. To give the move up, or if that store \
                     is lost, run pushctl app remove {id} there and add --although-moved here",
                    id = app.id,
                    store = moved.store
                ))),
                _ => Ok(()),
            }
        };
        let App { app_id, disabled, .. } = change_any_app(index, app, change).await?;
        Ok(AppState { app_id, disabled, had_moved_to })
    };
    recorded(Some(index), actor.event_of_app(Action::AppEnabled, app.id), work).await
}

/// Counts the devices that removing an app removes; one that is on its way here has none yet.
///
/// # Errors
/// If there is no such app, or the index did not answer.
pub async fn devices_to_lose(index: &dyn Index, app_id: &AppId) -> anyhow::Result<u64> {
    match index.app(app_id).await? {
        Some(app) => Ok(index.count_devices(&(&app).into()).await?),
        None if index.arrival(app_id).await?.is_some() => Ok(0),
        None => bail!(no_app(app_id)),
    }
}

/// Removes an app and all its devices. An app that is on its way here is given up.
///
/// # Errors
/// If there is no such app, the index did not answer, or it was not recorded.
pub async fn remove(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
) -> anyhow::Result<AppRemoved> {
    let app: AppRef<'_> = app.into();
    let work = async {
        give_up_arrival(index, app.id).await?;
        if let Some(found) = index.app(app.id).await? {
            app.check(&found)?;
        }
        if !index.remove_app(app.id).await? {
            bail!(no_app(app.id));
        }
        Ok(AppRemoved { removed: app.id.clone() })
    };
    recorded(Some(index), actor.event_of_app(Action::AppRemoved, app.id), work).await
}

/// Replaces the default secret; the old one stays valid for `overlap`.
///
/// # Errors
/// If there is no such app here, the secret is one that it has, the index did not answer, or it was not
/// recorded.
pub async fn rotate_secret(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    secret: Secret,
    overlap: Duration,
) -> anyhow::Result<NewSecret> {
    let app: AppRef<'_> = app.into();
    let event = event_of_secret(actor, Action::SecretRotated, app.id, DEFAULT_SECRET);
    let work = async {
        let change = |record: &mut App| {
            let now = UnixMillis::now();
            Ok(record.rotate(&secret, now, now.plus(overlap))?)
        };
        let changed = change_app(index, app, change).await?;
        Ok(NewSecret::new(&changed, DEFAULT_SECRET, secret.clone()))
    };
    recorded(Some(index), event, work).await
}

fn event_of_secret(actor: &Actor, action: Action, app: &AppId, secret: &str) -> AuditEvent {
    AuditEvent { secret: Some(secret.to_owned()), ..actor.event_of_app(action, app) }
}

/// Says that there is no such app.
fn no_app(app_id: &AppId) -> Refusal {
    Refusal::Missing(format!("there is no app {app_id}"))
}

/// Refuses an app that is on its way here.
async fn check_not_arriving(index: &dyn Index, app_id: &AppId) -> anyhow::Result<()> {
    if let Some(arrival) = index.arrival(app_id).await? {
        bail!(Refusal::Conflict(format!(
            "{app_id} is on its way here from {} since {}: repeat the command that takes it until it \
             succeeds, or give it up with pushctl app remove {app_id}",
            arrival.origin, arrival.begun_at
        )));
    }
    Ok(())
}

/// Turns an app that is on its way here into a disabled one with an unknown secret, which can be
/// removed.
async fn give_up_arrival(index: &dyn Index, app_id: &AppId) -> anyhow::Result<()> {
    let Some(arrival) = index.arrival(app_id).await? else { return Ok(()) };
    let mut app = App::new(app_id.clone(), &Secret::generate(), arrival.created_at);
    (app.generation, app.disabled) = (arrival.generation, true);
    index.finish_arrival(&app, &arrival.attempt).await?;
    Ok(())
}

/// Refuses an app that went to another store.
///
/// # Errors
/// If it did; the text names that store.
pub(crate) fn check_in_service(app: &App) -> anyhow::Result<()> {
    if let Some(moved) = &app.moved_to {
        bail!(Refusal::Conflict(format!(
            "{} has moved from here to {}: change it there",
            app.app_id, moved.store
        )));
    }
    Ok(())
}

/// Changes the record of an app that is in service here.
async fn change_app(
    index: &dyn Index,
    app: impl Into<AppRef<'_>>,
    mut change: impl FnMut(&mut App) -> anyhow::Result<()>,
) -> anyhow::Result<App> {
    let in_service = |record: &mut App| {
        check_in_service(record)?;
        change(record)
    };
    change_any_app(index, app.into(), in_service).await
}

/// Changes the record of an app, even of one that went to another store. If another program changed
/// the record since it was read, it is read again.
async fn change_any_app(
    index: &dyn Index,
    app: AppRef<'_>,
    mut change: impl FnMut(&mut App) -> anyhow::Result<()>,
) -> anyhow::Result<App> {
    for _ in 0..CHANGE_TRIES {
        let mut record = find(index, app).await?;
        change(&mut record)?;
        if index.update_app(&record).await? {
            return Ok(record);
        }
    }
    bail!(Refusal::Conflict(format!(
        "{} is being changed by other programs at this moment: try again",
        app.id
    )))
}
