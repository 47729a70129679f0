//! The credentials of a device, as a registration returns them: its MQTT login, and the token for its own
//! record.

use std::{fmt, sync::Arc, time::Duration};

use push_model::{
    app::AppKey, ids::ClientId, mqtt::MqttDevice, registration::RegistrationEpoch, time::UnixMillis,
};
use serde::Serialize;

use crate::{
    identity::DeviceIdentity, issue_error::IssueError, key_file::KeyFile, token::TokenError,
};

/// Issues logins with the keys of a file.
#[derive(Debug, Clone)]
pub struct DeviceCredentials {
    keys: Arc<KeyFile>,
    token_ttl: Duration,
    url: Option<Arc<str>>,
    websocket_url: Option<Arc<str>>,
}

impl DeviceCredentials {
    /// With these keys, for this long.
    pub fn new(keys: Arc<KeyFile>, token_ttl: Duration) -> Self {
        Self { keys, token_ttl, url: None, websocket_url: None }
    }

    /// Tells devices to connect to this URL.
    #[must_use]
    pub fn with_url(self, url: Option<&str>) -> Self {
        Self { url: url.map(Arc::from), ..self }
    }

    /// Tells devices that need WebSocket to connect to this URL.
    #[must_use]
    pub fn with_websocket_url(self, url: Option<&str>) -> Self {
        Self { websocket_url: url.map(Arc::from), ..self }
    }

    /// The URL that devices are told that need WebSocket.
    pub fn websocket_url(&self) -> Option<&str> {
        self.websocket_url.as_deref()
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
        let device = MqttDevice { app: app.id.clone(), client: client.clone() };
        let name = device.to_string();
        Ok(MqttLogin {
            url: self.url.clone(),
            websocket_url: self.websocket_url.clone(),
            topic: device.topic(),
            client_id: name.clone(),
            username: name,
            password: token.text,
            expires_at: token.expires_at,
        })
    }

    /// A token for the own record of this registration of a device.
    ///
    /// # Errors
    /// As [`DeviceCredentials::issue`].
    pub fn issue_for_record(
        &self,
        app: &AppKey,
        client: &ClientId,
        registration: RegistrationEpoch,
        now: UnixMillis,
    ) -> Result<RecordAccess, IssueError> {
        let keys = self.keys.current();
        let token = keys.issue_for_record(app, client, registration, now, self.token_ttl)?;
        Ok(RecordAccess { token: token.text, expires_at: token.expires_at })
    }

    /// Returns the device that a token for its own record was issued to.
    ///
    /// # Errors
    /// If it was not issued for that with one of the keys, or ended.
    pub fn verify_for_record(
        &self,
        token: &[u8],
        now: UnixMillis,
    ) -> Result<DeviceIdentity, TokenError> {
        self.keys.verify_for_record(token, now)
    }
}

/// What a device reads and changes its own record with, in `Authorization: Bearer`. Its JSON is
/// `result.access` of a registration; its `Debug` form does not show the token.
#[derive(Clone, Serialize)]
pub struct RecordAccess {
    /// The token.
    pub token: String,
    /// From then on it is refused.
    pub expires_at: UnixMillis,
}

impl fmt::Debug for RecordAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordAccess").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// A device's login at an MQTT broker. Its JSON is `result.mqtt` of a registration; its `Debug`
/// form does not show the password.
#[derive(Clone, Serialize)]
pub struct MqttLogin {
    /// The URL of the broker, if the operator has set one for devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Arc<str>>,
    /// The URL of the broker for MQTT over WebSocket, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub websocket_url: Option<Arc<str>>,
    /// The topic of its messages.
    pub topic: String,
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
