//! `pushctl device credentials`: what a device logs in to the MQTT broker with, as registering it
//! returns.

use std::sync::Arc;

use push_credentials::{DeviceCredentials, MqttLogin};
use push_index::Index;
use push_model::{
    app::AppKey,
    ids::{AppId, ClientId},
    time::UnixMillis,
};

use super::require_app;
use crate::output::Output;

/// Issues the logins of one app's devices.
#[derive(Debug)]
pub struct AppLogins {
    /// A token says which generation of the app it is for.
    app: AppKey,
    credentials: DeviceCredentials,
}

impl AppLogins {
    /// Those of this app, as it is now.
    ///
    /// # Errors
    /// If there is no such app, or the index did not answer.
    pub async fn of(
        app: &AppId,
        credentials: DeviceCredentials,
        index: &Arc<dyn Index>,
    ) -> anyhow::Result<Self> {
        Ok(Self { app: require_app(index, app).await?, credentials })
    }

    /// A login for this device, whether it is registered or not.
    ///
    /// # Errors
    /// If no key signs now.
    pub fn issue(&self, client: &ClientId) -> anyhow::Result<MqttLogin> {
        Ok(self.credentials.issue(&self.app, client, UnixMillis::now())?)
    }
}

/// Prints the login.
///
/// # Errors
/// If no key signs now.
pub fn run(logins: &AppLogins, client: &ClientId, out: Output) -> anyhow::Result<()> {
    let login = logins.issue(client)?;
    let MqttLogin { client_id, username, password, expires_at } = &login;
    let text = format!(
        "client id  {client_id}\nusername   {username}\npassword   {password}\nexpires    {expires_at}"
    );
    out.result(text, &login)
}
