//! Which devices may log in: those with a token that this service signed,
//! for an app that still exists.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use push_credentials::{DeviceIdentity, KeyFile};
use push_index::Index;
use push_model::{app::AppKey, time::UnixMillis};
use push_service::{log_failure, outage::Outage};
use tracing::info;

use super::{DeviceAuthenticator, Login, LoginRefusal};

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
        let app = self.index.app(&device.app).await;
        if app.is_ok()
            && let Some(ended) = self.outage.answered()
        {
            info!(for_ms = ended.for_ms(), failed = ended.failed, "apps can be looked up again");
        }
        match app {
            Ok(Some(app)) if app.generation == device.generation => Ok(device),
            Ok(_) => Err(LoginRefusal::AppRemoved),
            Err(error) => {
                let cause: &dyn std::error::Error = &error;
                let is_first = self.outage.failed(1, error.kind());
                log_failure!(is_first, app = %device.app, client_id, cause, "an app cannot be looked up");
                Err(LoginRefusal::Unavailable)
            }
        }
    }

    fn accepts_key(&self, kid: &str, now: UnixMillis) -> bool {
        self.keys.current().verifying(kid, now).is_some()
    }

    async fn has_app(&self, app: &AppKey) -> bool {
        match self.index.app(&app.id).await {
            Ok(found) => found.is_some_and(|found| AppKey::from(&found) == *app),
            Err(_) => true,
        }
    }
}

impl fmt::Debug for DeviceLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLogins").field("keys", &self.keys).finish_non_exhaustive()
    }
}
