//! The devices of a user, as data protection asks for them.

use anyhow::bail;
use push_index::Index;
use push_model::{
    app::AppKey,
    audit::Action,
    ids::{ClientId, UserId},
};
use serde::Serialize;

use super::{DeviceView, find, find_app_in_service, view};
use crate::{
    app::AppRef,
    audit::{Actor, recorded},
    refusal::Refusal,
};

/// The times that the devices of a user are removed before it is given up, while others register.
const ROUNDS: usize = 8;

/// The devices of a user.
#[derive(Debug, Clone, Serialize)]
pub struct UserDevices {
    /// The user.
    pub user_id: UserId,
    /// The devices, in the order of their client ids.
    pub devices: Vec<DeviceView>,
}

/// Names a user whose devices are gone.
#[derive(Debug, Clone, Serialize)]
pub struct UserRemoved {
    /// The user.
    pub user_id: UserId,
    /// The devices that were removed.
    pub removed: Vec<ClientId>,
}

/// Shows the devices of a user.
///
/// # Errors
/// If there is no such app, the user has no device, or the index did not answer.
pub async fn show(
    index: &dyn Index,
    app: impl Into<AppRef<'_>>,
    user: &UserId,
) -> anyhow::Result<UserDevices> {
    let app = find(index, app.into()).await?;
    let (key, declared) = (AppKey::from(&app), view::declared(&app));
    let mut devices = Vec::new();
    for client in clients(index, &key, user).await? {
        // It may have gone to another user since it was listed.
        let device = index.device(&key, &client).await?;
        let device = device.filter(|device| device.profile.user_id.as_ref() == Some(user));
        devices.extend(device.map(|device| DeviceView::new(device, &declared)));
    }
    if devices.is_empty() {
        bail!(no_devices(&key, user));
    }
    Ok(UserDevices { user_id: user.clone(), devices })
}

/// Removes all devices of a user.
///
/// # Errors
/// If there is no such app here, the user has no device or ever new ones, the index did not answer, or it was not
/// recorded.
pub async fn remove(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    user: &UserId,
) -> anyhow::Result<UserRemoved> {
    let app: AppRef<'_> = app.into();
    let work = async {
        let key = AppKey::from(&find_app_in_service(index, app).await?);
        let mut removed = Vec::new();
        for _ in 0..ROUNDS {
            let clients = clients(index, &key, user).await?;
            if clients.is_empty() {
                if removed.is_empty() {
                    bail!(no_devices(&key, user));
                }
                return Ok(UserRemoved { user_id: user.clone(), removed });
            }
            for client in clients {
                if index.remove_device_of(&key, user, &client).await? {
                    removed.push(client);
                }
            }
        }
        bail!(Refusal::Conflict(format!(
            "the user {user} registers devices all the time: repeat it"
        )))
    };
    recorded(Some(index), actor.event_of_app(Action::UserRemoved, app.id), work).await
}

/// A user is known by its devices.
fn no_devices(app: &AppKey, user: &UserId) -> Refusal {
    Refusal::Missing(format!("{} has no device of the user {user}", app.id))
}

async fn clients(index: &dyn Index, app: &AppKey, user: &UserId) -> anyhow::Result<Vec<ClientId>> {
    let found = index.user_devices(app, std::slice::from_ref(user)).await?;
    Ok(found.into_iter().next().unwrap_or_default())
}
