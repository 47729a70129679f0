//! The MQTT login of a device, as a registration returns it.

use std::{fmt, sync::Arc, time::Duration};

use push_model::{
    app::AppKey, ids::ClientId, mqtt::MqttDevice, registration::RegistrationEpoch, time::UnixMillis,
};
use serde::Serialize;

use crate::{issue_error::IssueError, key_file::KeyFile};

/// Issues logins with the keys of a file.
#[derive(Debug, Clone)]
pub struct DeviceCredentials {
    keys: Arc<KeyFile>,
    token_ttl: Duration,
}

impl DeviceCredentials {
    /// With these keys, for this long.
    pub fn new(keys: Arc<KeyFile>, token_ttl: Duration) -> Self {
        Self { keys, token_ttl }
    }

    /// The keys.
    pub fn keys(&self) -> &Arc<KeyFile> {
        &self.keys
    }

    /// A login for this registration of a device.
    ///
    /// # Errors
    /// If no key signs at this time, or the operating system gives no random numbers.
    pub fn issue(
        &self,
        app: &AppKey,
        client: &ClientId,
        registration: RegistrationEpoch,
        now: UnixMillis,
    ) -> Result<MqttLogin, IssueError> {
        let token = self.keys.current().issue(app, client, registration, now, self.token_ttl)?;
        let name = MqttDevice { app: app.id.clone(), client: client.clone() }.to_string();
        Ok(MqttLogin {
            client_id: name.clone(),
            username: name,
            password: token.text,
            expires_at: token.expires_at,
        })
    }
}

/// A device's login at an MQTT broker. Its JSON is `result.mqtt` of a registration; its `Debug`
/// form does not show the password.
#[derive(Clone, Serialize)]
pub struct MqttLogin {
    /// The MQTT client id.
    pub client_id: String,
    /// The user name.
    pub username: String,
    /// The password: a token.
    pub password: String,
    /// From then on it is refused.
    pub expires_at: UnixMillis,
}

impl fmt::Debug for MqttLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttLogin").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}
