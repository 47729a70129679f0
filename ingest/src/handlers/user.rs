//! `GET` and `DELETE /v1/user/{AppID}/{UserID}`: all devices of a user, as data protection asks for.
//!
//! A user is known by its devices: without any there is none. A device that changes its user while the devices of
//! the former one are removed may be removed with them.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use push_model::{
    app::{AppKey, Scope},
    device::{Device, ShownDevice},
    ids::{ClientId, UserId},
    time::UnixMillis,
};
use push_providers::by_kind::shown_device;
use serde::Serialize;

use super::other_call::{acquire_call, success};
use crate::{
    allowance::RateStatus,
    apps::{CachedApp, Logins},
    head::Head,
    index_client::{IndexClient, Subject},
    rejection::Rejection,
    reply::Reply,
    route::AppResource,
};

/// The most devices that are read or removed at the same time.
const AT_ONCE: usize = 16;
/// How often the devices are looked up while others register for the user.
const ROUNDS: usize = 5;

#[derive(Serialize)]
struct Shown<'a> {
    user_id: &'a UserId,
    devices: Vec<ShownDevice<'a>>,
}

#[derive(Serialize)]
struct Removed<'a> {
    user_id: &'a UserId,
    /// The devices that were removed.
    client_ids: Vec<ClientId>,
}

/// Answers the calls for users.
#[derive(Debug)]
pub(super) struct UserHandler {
    pub(super) logins: Arc<Logins>,
    pub(super) index: Arc<IndexClient>,
}

impl UserHandler {
    /// Shows the devices of a user.
    pub(super) async fn get(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let (cached, user, rate) = self.authenticate(resource, head).await?;
        let app = AppKey::from(&cached.app);
        let clients = self.clients(&app, &user).await?;
        let (index, key) = (&self.index, &app);
        let found = stream::iter(clients).map(move |client| async move {
            let device = index.index.device(key, &client);
            index.ask(Subject::device(&key.id, &client), device).await
        });
        let found: Vec<Option<Device>> = found.buffered(AT_ONCE).try_collect().await?;
        let of_user = |device: &Device| device.profile.user_id.as_ref() == Some(&user);
        let devices = found.into_iter().flatten().filter(of_user).map(shown_device);
        let devices: Vec<_> = devices.collect();
        if devices.is_empty() {
            return Err(NO_USER);
        }
        let declared = &cached.app.attributes;
        let devices = devices.iter().map(|device| ShownDevice::new(device, declared)).collect();
        success(&Shown { user_id: &user, devices }, rate)
    }

    /// Removes the devices of a user.
    pub(super) async fn delete(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let (cached, user, rate) = self.authenticate(resource, head).await?;
        cached.check_in_service()?;
        let app = AppKey::from(&cached.app);
        let mut client_ids = Vec::new();
        for _ in 0..ROUNDS {
            let clients = self.clients(&app, &user).await?;
            if clients.is_empty() {
                if client_ids.is_empty() {
                    return Err(NO_USER);
                }
                client_ids.sort_unstable();
                client_ids.dedup();
                return success(&Removed { user_id: &user, client_ids }, rate);
            }
            let (index, key) = (&self.index, &app);
            let removals = stream::iter(clients).map(|client| async {
                let removal = index.index.remove_device_of(key, &user, &client);
                let removed = index.ask(Subject::device(&key.id, &client), removal).await?;
                Ok::<_, Rejection>(removed.then_some(client))
            });
            let removed: Vec<_> = removals.buffer_unordered(AT_ONCE).try_collect().await?;
            for client in removed.into_iter().flatten() {
                cached.devices.removed();
                client_ids.push(client);
            }
        }
        Err(Rejection::Unavailable("devices go on registering for this user"))
    }

    async fn clients(&self, app: &AppKey, user: &UserId) -> Result<Vec<ClientId>, Rejection> {
        let found = self.index.index.user_devices(app, std::slice::from_ref(user));
        let found = self.index.ask(Subject::app(&app.id), found).await?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    async fn authenticate(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<(Arc<CachedApp>, UserId, Option<RateStatus>), Rejection> {
        let now = UnixMillis::now();
        let caller = self.logins.authenticate(&resource.app, head, Scope::Devices, now).await?;
        let rate = acquire_call(&caller.cached).await?;
        let user = resource.id.parse();
        let user = user.map_err(|bad| Rejection::Illegal(format!("the user id {bad}")))?;
        Ok((caller.cached, user, rate))
    }
}

const NO_USER: Rejection = Rejection::Unknown("user");
