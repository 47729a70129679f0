//! The devices of an app: registering, showing, listing and removing them.
//!
//! - `import`: many devices from NDJSON
//! - `list`: the devices, page by page
//! - `gone`: devices that were removed as gone
//! - `logins`: what devices log in to the MQTT broker with

mod gone;
pub mod import;
mod list;
mod logins;

use anyhow::{Context as _, bail};
use push_index::Index;
use push_model::{
    app::{App, AppKey},
    attributes::Attribute,
    audit::{Action, AuditEvent},
    device::{CheckedDevice, Device, DeviceDraft},
    ids::{AppId, ClientId},
    time::UnixMillis,
};
use push_providers::by_kind::{shown_device, stored_device};
use ring::rand::SystemRandom;
use serde::Serialize;

pub use self::{
    gone::{Gone, GonePage, GoneView, gone, gone_page},
    list::{DevicePage, list},
    logins::AppLogins,
};
use crate::{
    app::check_in_service,
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
    pub device: Device,
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

/// Registers or replaces one device.
///
/// # Errors
/// If there is no such app here, the device is wrong, or the index did not answer.
pub async fn put(
    index: &dyn Index,
    app_id: &AppId,
    client_id: ClientId,
    draft: DeviceDraft<'_>,
) -> anyhow::Result<DeviceStored> {
    let app = find_app_in_service(index, app_id).await?;
    let CheckedDevice { device, warnings } = draft.check(client_id)?;
    let mut device = stored_device(device, &SystemRandom::new())?;
    let mut warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    warnings.extend(app.check_account(device.transport).err().map(|warning| warning.to_string()));
    let app = AppKey::from(&app);
    let put = index.put_devices(&app, std::slice::from_ref(&device), UnixMillis::now()).await?;
    let put = put.into_iter().next().context("the index gave no answer")??;
    for attribute in put.absent().attributes.iter() {
        device.attributes.unset(attribute);
        warnings.push(no_room(attribute));
    }
    let device = shown_device(device);
    Ok(DeviceStored { device, is_new: put.is_new(), warnings })
}

/// Shows one device.
///
/// # Errors
/// If there is no such app or device, or the index did not answer.
pub async fn show(
    index: &dyn Index,
    app_id: &AppId,
    client_id: &ClientId,
) -> anyhow::Result<Device> {
    let app = find_app(index, app_id).await?;
    let device = index.device(&app, client_id).await?.map(shown_device);
    Ok(device.ok_or_else(|| no_device(app_id, client_id))?)
}

/// Removes one device.
///
/// # Errors
/// If there is no such app here or no such device, or the index did not answer.
pub async fn remove(
    index: &dyn Index,
    app_id: &AppId,
    client_id: ClientId,
) -> anyhow::Result<DeviceRemoved> {
    let app = AppKey::from(&find_app_in_service(index, app_id).await?);
    if !index.remove_device(&app, &client_id).await? {
        bail!(no_device(app_id, &client_id));
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
    app_id: &AppId,
    client_id: ClientId,
    draft: DeviceDraft<'_>,
) -> anyhow::Result<DeviceStored> {
    let event = event_of_device(actor, Action::DeviceStored, app_id, &client_id);
    recorded(Some(index), event, put(index, app_id, client_id, draft)).await
}

/// Does the same as [`remove`] for a caller of the admin API, whose changes the audit trail has.
///
/// # Errors
/// Those of [`remove`], and if it was not recorded.
pub async fn remove_recorded(
    index: &dyn Index,
    actor: &Actor,
    app_id: &AppId,
    client_id: ClientId,
) -> anyhow::Result<DeviceRemoved> {
    let event = event_of_device(actor, Action::DeviceRemoved, app_id, &client_id);
    recorded(Some(index), event, remove(index, app_id, client_id)).await
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
    mut take: impl FnMut(&[Device]) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let app = find_app(index, app_id).await?;
    let mut unreadable = 0;
    for mut range in index.extent(&app).await? {
        loop {
            let scanned = index.list_devices(&app, range, REQUEST_DEVICES).await?;
            let devices: Vec<_> = scanned.items.into_iter().map(shown_device).collect();
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

async fn find(index: &dyn Index, app_id: &AppId) -> anyhow::Result<App> {
    let none = || {
        Refusal::Missing(format!(
            "there is no app {app_id}: make it with `pushctl app create {app_id}`"
        ))
    };
    Ok(index.app(app_id).await?.ok_or_else(none)?)
}

/// Says that the app has no such device.
pub(crate) fn no_device(app_id: &AppId, client_id: &ClientId) -> Refusal {
    Refusal::Missing(format!("{app_id} has no device {client_id}"))
}

/// Finds the app of this name in its current generation.
async fn find_app(index: &dyn Index, app_id: &AppId) -> anyhow::Result<AppKey> {
    Ok(AppKey::from(&find(index, app_id).await?))
}

/// Finds the app for a change, which would be lost if the app went to another store.
async fn find_app_in_service(index: &dyn Index, app_id: &AppId) -> anyhow::Result<App> {
    let app = find(index, app_id).await?;
    check_in_service(&app)?;
    Ok(app)
}

/// Returns the warning for a value that the app's dictionaries have no room for.
fn no_room(attribute: Attribute) -> String {
    let name = attribute.name();
    format!(
        "{name} is stored as absent: the devices of this app have too many different values of it"
    )
}
