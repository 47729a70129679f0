//! Logins of devices at the MQTT broker, as registering a device returns them.

use std::sync::Arc;

use anyhow::bail;
use push_credentials::{DeviceCredentials, MqttLogin};
use push_index::Index;
use push_model::{
    app::AppKey,
    device::TargetFields,
    ids::{AppId, ClientId},
    time::UnixMillis,
};

use super::find_app;

/// Issues the logins of one app's devices.
#[derive(Debug)]
pub struct AppLogins {
    /// A token says which generation of the app it is for.
    app: AppKey,
    credentials: DeviceCredentials,
    index: Arc<dyn Index>,
}

impl AppLogins {
    /// Issues for this app, as it is now.
    ///
    /// # Errors
    /// If there is no such app, or the index did not answer.
    pub async fn of(
        app: &AppId,
        credentials: DeviceCredentials,
        index: &Arc<dyn Index>,
    ) -> anyhow::Result<Self> {
        let app = find_app(&**index, app).await?;
        Ok(Self { app, credentials, index: Arc::clone(index) })
    }

    /// Issues a login for this device, as it is registered now.
    ///
    /// # Errors
    /// If it is not registered, the index did not answer, or no key signs now.
    pub async fn issue(&self, client: &ClientId) -> anyhow::Result<MqttLogin> {
        let found = self
            .index
            .targets(&self.app, std::slice::from_ref(client), TargetFields::Address)
            .await?;
        let Some(Ok(target)) = found.into_iter().next() else {
            bail!(
                "{client} is not registered in {}, and only a registered device can log in: \
                 register it with `pushctl device put`",
                self.app.id
            );
        };
        Ok(self.credentials.issue(&self.app, client, target.epoch, UnixMillis::now())?)
    }
}
