//! The identity that a verified token proves.

use std::sync::Arc;

use push_model::{
    app::AppKey,
    ids::{AppId, ClientId},
    mqtt::MqttDevice,
    registration::RegistrationEpoch,
    time::UnixMillis,
};

/// The device that a token was issued to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Its app.
    pub app: AppId,
    /// Its id within the app.
    pub client: ClientId,
    /// The generation of the app. If the app of that name has another generation, the token belongs
    /// to an app that was removed, and must be refused where that can be known.
    pub generation: u64,
    /// The registration of the device. If the device is not registered any more, or as another registration, the
    /// token belongs to a removed device, and must be refused where that can be known.
    pub registration: RegistrationEpoch,
    /// From then on the token is refused: it expires, or its key does.
    pub expires_at: UnixMillis,
    /// The key that signed the token. If [`KeySet::verifying`](crate::KeySet::verifying) does not
    /// find it any more, the token is refused although it has not expired.
    pub kid: Arc<str>,
}

impl DeviceIdentity {
    /// The device as the MQTT broker knows it.
    pub fn device(&self) -> MqttDevice {
        MqttDevice { app: self.app.clone(), client: self.client.clone() }
    }

    /// The app, told apart from earlier and later ones of its name.
    pub fn app_key(&self) -> AppKey {
        AppKey { id: self.app.clone(), generation: self.generation }
    }
}
