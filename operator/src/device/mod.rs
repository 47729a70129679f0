//! The devices of an app: registering, showing, listing and removing them.
//!
//! - `import`: many devices from NDJSON
//! - `counts`: the number of devices by transport and by country
//! - `list`: the devices, page by page
//! - `gone`: devices that were removed as gone
//! - `view`: a device as it is shown
//! - `users`: the devices of a user
//! - `logins`: what devices log in to the MQTT broker with

mod counts;
mod gone;
pub mod import;
mod list;
mod logins;
pub mod users;
mod view;

use anyhow::{Context as _, bail};
use push_boot::settings::nearest;
use push_index::{Index, PatchRefused};
use push_model::{
    app::{App, AppKey},
    audit::{Action, AuditEvent},
    custom::Declarations,
    device::{CheckedDevice, DeviceDraft, ProfileDraft, ProfileWarning},
    ids::{AppId, ClientId},
    profile::DeviceWrite,
    time::UnixMillis,
};
use push_providers::by_kind::stored_device;
use ring::rand::SystemRandom;
use serde::Serialize;

pub use self::{
    counts::{CountryCount, DeviceCounts, counts},
    gone::{Gone, GonePage, GoneView, gone, gone_page},
    list::{DevicePage, list},
    logins::AppLogins,
    view::DeviceView,
};
use crate::{
    app::{AppRef, check_in_service},
    audit::{Actor, recorded},
    refusal::Refusal,
};

/// Devices of one request to the index.
const REQUEST_DEVICES: usize = 4096;

/// A device that was registered or replaced. It serialises as the device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceStored {
    /// The device, as it is stored.
    #[serde(flatten)]
    pub device: DeviceView,
    /// True if it was not registered before.
    #[serde(skip)]
    pub is_new: bool,
    /// Differences from what the sender may expect: attributes that are stored as absent, each with the
    /// reason, and a transport for which the app has no account.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// Names a device that is gone.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceRemoved {
    /// The device.
    pub removed: ClientId,
}

/// Registers or changes one device. What the draft does not name of its profile stays as it is stored.
///
/// # Errors
/// If there is no such app here, the device is wrong, or the index did not answer.
pub async fn put(
    index: &dyn Index,
    app: impl Into<AppRef<'_>>,
    client_id: ClientId,
    draft: DeviceDraft<'_>,
) -> anyhow::Result<DeviceStored> {
    let app = find_app_in_service(index, app.into()).await?;
    let profile = draft.check_profile(&app.attributes)?;
    let CheckedDevice { device, warnings } = draft.check(client_id)?;
    let device = stored_device(device, &SystemRandom::new())?;
    let mut warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    warnings.extend(profile.warnings.iter().map(|warning| told(warning, &app.attributes)));
    warnings.extend(app.check_account(device.transport).err().map(|warning| warning.to_string()));
    let key = AppKey::from(&app);
    let write = DeviceWrite { device, change: profile.change };
    let put = index.write_devices(&key, std::slice::from_ref(&write), UnixMillis::now()).await?;
    let put = put.into_iter().next().context("the index gave no answer")??;
    warnings.extend(put.absent().warnings(&app.attributes));
    let stored = index.device(&key, &write.device.client_id).await?;
    let device = DeviceView::new(stored.unwrap_or(write.device), &view::declared(&app));
    Ok(DeviceStored { device, is_new: put.is_new(), warnings })
}

/// Returns what to say of a part of a profile that is not stored.
fn told(warning: &ProfileWarning, declared: &Declarations) -> String {
    let near = match warning {
        ProfileWarning::Undeclared(name) => {
            nearest(name, declared.iter().map(|declared| declared.name.as_str()))
        }
        ProfileWarning::Value(..) | ProfileWarning::Topic { .. } => None,
    };
    match near {
        Some(near) => format!("{warning}; the nearest one is {near}"),
        None => warning.to_string(),
    }
}

/// Changes the profile of a registered device.
///
/// # Errors
/// If there is no such app here or no such device, the change is wrong, or the index did not answer.
pub async fn patch(
    index: &dyn Index,
    app: impl Into<AppRef<'_>>,
    client_id: ClientId,
    draft: &ProfileDraft<'_>,
) -> anyhow::Result<DeviceStored> {
    let app = find_app_in_service(index, app.into()).await?;
    let checked = draft.check(&app.attributes)?;
    let warnings = checked.warnings.iter().map(|warning| told(warning, &app.attributes));
    let mut warnings: Vec<_> = warnings.collect();
    let key = AppKey::from(&app);
    let patched = index.patch_devices(&key, &[(client_id.clone(), checked.change)]).await?;
    let patched = patched.into_iter().next().context("the index gave no answer")?;
    let absent = patched.map_err(|refused| match refused {
        PatchRefused::Unknown => no_device(&key.id, &client_id),
        PatchRefused::Unreadable => Refusal::Conflict(refused.to_string()),
    })?;
    warnings.extend(absent.warnings(&app.attributes));
    let device = index.device(&key, &client_id).await?;
    let device = device.ok_or_else(|| no_device(&key.id, &client_id))?;
    let device = DeviceView::new(device, &view::declared(&app));
    Ok(DeviceStored { device, is_new: false, warnings })
}

/// Shows one device.
///
/// # Errors
/// If there is no such app or device, or the index did not answer.
pub async fn show(
    index: &dyn Index,
    app_id: &AppId,
    client_id: &ClientId,
) -> anyhow::Result<DeviceView> {
    let app = find(index, app_id.into()).await?;
    let device = index.device(&AppKey::from(&app), client_id).await?;
    let device = device.ok_or_else(|| no_device(app_id, client_id))?;
    Ok(DeviceView::new(device, &view::declared(&app)))
}

/// Removes one device.
///
/// # Errors
/// If there is no such app here or no such device, or the index did not answer.
pub async fn remove(
    index: &dyn Index,
    app: impl Into<AppRef<'_>>,
    client_id: ClientId,
) -> anyhow::Result<DeviceRemoved> {
    let app = AppKey::from(&find_app_in_service(index, app.into()).await?);
    if !index.remove_device(&app, &client_id).await? {
        bail!(no_device(&app.id, &client_id));
    }
    Ok(DeviceRemoved { removed: client_id })
}

/// Does the same as [`put`] for a caller of the admin API, whose changes the audit trail has.
///
/// # Errors
/// Those of [`put`], and if it was not recorded.
pub async fn put_recorded(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    client_id: ClientId,
    draft: DeviceDraft<'_>,
) -> anyhow::Result<DeviceStored> {
    let app: AppRef<'_> = app.into();
    let event = event_of_device(actor, Action::DeviceStored, app.id, &client_id);
    recorded(Some(index), event, put(index, app, client_id, draft)).await
}

/// Does the same as [`patch`] for a caller of the admin API, whose changes the audit trail has.
///
/// # Errors
/// Those of [`patch`], and if it was not recorded.
pub async fn patch_recorded(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    client_id: ClientId,
    draft: &ProfileDraft<'_>,
) -> anyhow::Result<DeviceStored> {
    let app: AppRef<'_> = app.into();
    let event = event_of_device(actor, Action::DeviceStored, app.id, &client_id);
    recorded(Some(index), event, patch(index, app, client_id, draft)).await
}

/// Does the same as [`remove`] for a caller of the admin API, whose changes the audit trail has.
///
/// # Errors
/// Those of [`remove`], and if it was not recorded.
pub async fn remove_recorded(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    client_id: ClientId,
) -> anyhow::Result<DeviceRemoved> {
    let app: AppRef<'_> = app.into();
    let event = event_of_device(actor, Action::DeviceRemoved, app.id, &client_id);
    recorded(Some(index), event, remove(index, app, client_id)).await
}

fn event_of_device(
    actor: &Actor,
    action: Action,
    app_id: &AppId,
    client_id: &ClientId,
) -> AuditEvent {
    AuditEvent { client_id: Some(client_id.clone()), ..actor.event_of_app(action, app_id) }
}

/// Counts the devices of an app.
///
/// # Errors
/// If there is no such app, or the index did not answer.
pub async fn count(index: &dyn Index, app_id: &AppId) -> anyhow::Result<u64> {
    let app = find_app(index, app_id).await?;
    Ok(index.count_devices(&app).await?)
}

/// Hands all devices to `take` as they registered, some thousands at a time. Returns how many were left out because their
/// records cannot be read.
///
/// # Errors
/// If there is no such app, the index did not answer, or `take` failed.
pub async fn export(
    index: &dyn Index,
    app_id: &AppId,
    mut take: impl FnMut(&[DeviceView]) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let record = find(index, app_id.into()).await?;
    let (app, declared) = (AppKey::from(&record), view::declared(&record));
    let mut unreadable = 0;
    for mut range in index.extent(&app).await? {
        loop {
            let scanned = index.list_devices(&app, range, REQUEST_DEVICES).await?;
            let devices = scanned.items.into_iter();
            let devices: Vec<_> =
                devices.map(|device| DeviceView::new(device, &declared)).collect();
            take(&devices)?;
            unreadable += scanned.unreadable;
            match scanned.next {
                Some(next) => range.from = next,
                None => break,
            }
        }
    }
    Ok(unreadable)
}

async fn find(index: &dyn Index, app: AppRef<'_>) -> anyhow::Result<App> {
    let none = || {
        let id = app.id;
        Refusal::Missing(format!("there is no app {id}: make it with `pushctl app create {id}`"))
    };
    let found = index.app(app.id).await?.ok_or_else(none)?;
    app.check(&found)?;
    Ok(found)
}

/// Says that the app has no such device.
pub(crate) fn no_device(app_id: &AppId, client_id: &ClientId) -> Refusal {
    Refusal::Missing(format!("{app_id} has no device {client_id}"))
}

/// Finds the app in its current generation.
///
/// # Errors
/// If there is no such app, or the index did not answer.
pub async fn find_app(index: &dyn Index, app: impl Into<AppRef<'_>>) -> anyhow::Result<AppKey> {
    Ok(AppKey::from(&find(index, app.into()).await?))
}

/// Finds the app for a change, which would be lost if the app went to another store.
async fn find_app_in_service(index: &dyn Index, app: AppRef<'_>) -> anyhow::Result<App> {
    let app = find(index, app).await?;
    check_in_service(&app)?;
    Ok(app)
}
