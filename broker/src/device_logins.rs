//! Checks device logins: a token must be signed by this service, its app must still exist, and its
//! device must still be registered.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::StreamExt as _;
use push_boot::{log_failure, outage::Outage};
use push_credentials::{DeviceIdentity, KeyFile};
use push_index::Index;
use push_model::{
    app::AppKey,
    device::{NoTarget, TargetFields},
    ids::ClientId,
    registration::RegistrationEpoch,
    time::UnixMillis,
};
use push_store::IndexError;
use tokio::time::timeout;
use tracing::info;

use super::{DeviceAuthenticator, Login, LoginRefusal};

/// The time that the search for removed devices waits for the next answer of the index. A part of the
/// index that is away must not delay the devices of the others.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Checks tokens with the keys that sign them, and their apps in the index.
pub struct DeviceLogins {
    keys: Arc<KeyFile>,
    index: Arc<dyn Index>,
    /// Logs an outage of the index once, however many devices log in meanwhile.
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
        // A token outlives its app and its device. Others may have their names by now.
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
                log_failure!(
                    is_first,
                    runbook = "mqtt-devices-cannot-connect",
                    app = %device.app,
                    client_id,
                    cause,
                    "a device cannot be looked up"
                );
                Err(LoginRefusal::Unavailable)
            }
        }
    }

    fn accepts_key(&self, kid: &str, now: UnixMillis) -> bool {
        self.keys.current().verifying(kid, now).is_some()
    }

    async fn find_removed(
        &self,
        app: &AppKey,
        devices: &[(ClientId, RegistrationEpoch)],
        ended: &mut (dyn FnMut(usize) + Send),
    ) {
        let clients: Vec<ClientId> = devices.iter().map(|(client, _)| client.clone()).collect();
        let mut known = self.index.known_targets(app, &clients, TargetFields::Address);
        while let Ok(Some((place, found))) = timeout(PATIENCE, known.next()).await {
            let registration = devices.get(place).map(|(_, registration)| *registration);
            let is_removed = match found {
                Ok(target) => registration != Some(target.epoch),
                Err(NoTarget::Unknown) => true,
                Err(NoTarget::Unreadable) => false,
            };
            if is_removed {
                ended(place);
            }
        }
    }

    async fn has_app(&self, app: &AppKey) -> bool {
        match timeout(PATIENCE, self.index.app(&app.id)).await {
            Ok(Ok(found)) => found.is_some_and(|found| AppKey::from(&found) == *app),
            Ok(Err(_)) | Err(_) => true,
        }
    }
}

/// The state of a token's device in the index.
enum Found {
    Device,
    NoApp,
    NoDevice,
    /// Its record cannot be read.
    Unreadable,
}

impl DeviceLogins {
    async fn find(&self, device: &DeviceIdentity) -> Result<Found, IndexError> {
        let app = self.index.app(&device.app).await?;
        if app.is_none_or(|app| app.generation != device.generation) {
            return Ok(Found::NoApp);
        }
        let clients = std::slice::from_ref(&device.client);
        let found = self.index.targets(&device.app_key(), clients, TargetFields::Address).await?;
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
