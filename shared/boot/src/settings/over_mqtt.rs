//! The setting that says if devices are reached over MQTT. Workers deliver by it, and `ingest` warns who
//! registers a device that no worker reaches.

use crate::{
    settings,
    settings::{ConfigErrors, on_or_off},
};

settings! {
    /// The flag that turns MQTT off.
    pub struct OverMqttArgs, "MQTT" => OverMqttValues {
        /// Reach devices over MQTT. `off` is for a service that reaches them through FCM, APNs, Web Push and
        /// webhooks alone; set it for `ingest` and for workers
        transport_mqtt: bool = ["on|off", "on"] on_or_off;
    }
}

impl OverMqttArgs {
    /// Returns true if devices are reached over MQTT, and `None` if the value is wrong, which goes into
    /// `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<bool> {
        self.values(errors).map(|given| given.transport_mqtt)
    }
}
