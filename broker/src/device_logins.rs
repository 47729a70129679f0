//! Which devices may log in: those with a token that this service signed, for an app that still exists
//! and a device that is still registered.

use std::{collections::HashSet, fmt, sync::Arc};

use async_trait::async_trait;
use futures::future;
use push_boot::{log_failure, outage::Outage};
use push_credentials::{DeviceIdentity, KeyFile};
use push_index::{Index, IndexError};
use push_model::{
    app::AppKey,
    device::{NoTarget, Target},
    ids::ClientId,
    registration::RegistrationEpoch,
    time::UnixMillis,
};
use tracing::info;

use super::{DeviceAuthenticator, Login, LoginRefusal};

/// The most devices that the index is asked for together. Of 50,000 sessions, each round asks it 49 times.
const DEVICES_ASKED_FOR: usize = 1024;

/// A device as which a session was begun.
type Registered = (ClientId, RegistrationEpoch);

/// Checks tokens with the keys that sign them, and their apps in the index.
pub struct DeviceLogins {
    keys: Arc<KeyFile>,
    index: Arc<dyn Index>,
    /// So that an outage of the index is logged once, however many devices log in meanwhile.
    outage: Outage,
}

impl DeviceLogins {
    /// Checks tokens with these keys, and apps in this index.
    pub fn new(keys: Arc<KeyFile>, index: Arc<dyn Index>) -> Self {
        Self { keys, index, outage: Outage::of_refused_requests() }
    }
}

#[async_trait]
impl DeviceAuthenticator for DeviceLogins {
    async fn authenticate(
        &self,
        login: Login<'_>,
        now: UnixMillis,
    ) -> Result<DeviceIdentity, LoginRefusal> {
        let Login { client_id, user, password } = login;
        let device = self.keys.authenticate(client_id, user, password, now)?;
        // A token outlives its app. Under the same name there may be another app by now.
        // So may there be another device of its client id.
        let found = self.find(&device).await;
        if found.is_ok()
            && let Some(ended) = self.outage.answered()
        {
            info!(for_ms = ended.for_ms(), failed = ended.failed, "devices can be looked up again");
        }
        match found {
            Ok(Found::Device) => Ok(device),
            Ok(Found::NoApp) => Err(LoginRefusal::AppRemoved),
            Ok(Found::NoDevice) => Err(LoginRefusal::DeviceRemoved),
            Ok(Found::Unreadable) => Err(LoginRefusal::Unavailable),
            Err(error) => {
                let cause: &dyn std::error::Error = &error;
                let is_first = self.outage.failed(1, error.kind());
                log_failure!(is_first, app = %device.app, client_id, cause, "a device cannot be looked up");
                Err(LoginRefusal::Unavailable)
            }
        }
    }

    fn accepts_key(&self, kid: &str, now: UnixMillis) -> bool {
        self.keys.current().verifying(kid, now).is_some()
    }

    async fn removed(&self, app: &AppKey, devices: Vec<Registered>) -> HashSet<Registered> {
        let mut removed = HashSet::new();
        for asked in devices.chunks(DEVICES_ASKED_FOR) {
            match self.removed_of(app, asked).await {
                Ok(found) => removed.extend(found),
                // A part of the index is away. Asked one by one, which the index joins into few requests again,
                // only the devices of that part are left.
                Err(_) => {
                    let each = asked.chunks(1).map(|device| self.removed_of(app, device));
                    removed.extend(future::join_all(each).await.into_iter().flatten().flatten());
                }
            }
        }
        removed
    }

    async fn has_app(&self, app: &AppKey) -> bool {
        match self.index.app(&app.id).await {
            Ok(found) => found.is_some_and(|found| AppKey::from(&found) == *app),
            Err(_) => true,
        }
    }
}

/// What the index has of the device of a token.
enum Found {
    Device,
    NoApp,
    NoDevice,
    /// Its record cannot be read.
    Unreadable,
}

impl DeviceLogins {
    async fn removed_of(
        &self,
        app: &AppKey,
        devices: &[Registered],
    ) -> Result<Vec<Registered>, IndexError> {
        let clients: Vec<ClientId> = devices.iter().map(|(client, _)| client.clone()).collect();
        let found = self.index.targets(app, &clients).await?;
        let is_removed = |found: &Result<Target, NoTarget>, registration| match found {
            Ok(target) => target.epoch != registration,
            Err(NoTarget::Unreadable) => false,
            Err(NoTarget::Unknown) => true,
        };
        let each = devices.iter().zip(found);
        let removed = each.filter(|((_, registration), found)| is_removed(found, *registration));
        Ok(removed.map(|(device, _)| device.clone()).collect())
    }

    async fn find(&self, device: &DeviceIdentity) -> Result<Found, IndexError> {
        let app = self.index.app(&device.app).await?;
        if app.is_none_or(|app| app.generation != device.generation) {
            return Ok(Found::NoApp);
        }
        let clients = std::slice::from_ref(&device.client);
        let found = self.index.targets(&device.app_key(), clients).await?;
        Ok(match found.into_iter().next() {
            Some(Ok(target)) if target.epoch == device.registration => Found::Device,
            Some(Err(NoTarget::Unreadable)) => Found::Unreadable,
            _ => Found::NoDevice,
        })
    }
}

impl fmt::Debug for DeviceLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLogins").field("keys", &self.keys).finish_non_exhaustive()
    }
}
