//! The names of a device at the MQTT broker: its client id there, and the topic that it reads.

use std::{fmt, str::FromStr};

use crate::ids::{AppId, BadId, ClientId};

/// The reason string with which the embedded broker refuses a message (0x97, quota exceeded) because as
/// many wait for the absent device as may wait. Trying again would not help.
pub const QUEUE_FULL: &str = "the queue of the device is full";

/// The user property of a PUBLISH (MQTT 5, section 3.3.2.3.7) that tells the embedded broker for which
/// [`RegistrationEpoch`](crate::registration::RegistrationEpoch) of the client id the message is. Without it, a
/// removed device that is still connected would get what is sent to a later device of its client id, and a late
/// message for the removed device would reach the later one.
///
/// Most brokers hand such a property to the device. So the worker sends it only to a broker whose CONNACK has a
/// user property of this name.
pub const REGISTRATION: &str = "registration";

/// A device as the MQTT broker knows it.
///
/// An MQTT client id is unique within the broker, a [`ClientId`] only within its app, so the MQTT
/// client id is `{AppID}:{ClientID}`. An App ID has no colon, so the first colon separates the two.
/// Mosquitto 2.1 refuses a client id with a slash when a plugin checks access.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MqttDevice {
    /// Its app.
    pub app: AppId,
    /// Its id within the app.
    pub client: ClientId,
}

impl MqttDevice {
    /// The longest MQTT client id, in characters.
    pub const MAX_LEN: usize = AppId::MAX_LEN + 1 + ClientId::MAX_LEN;

    /// The only topic that the device reads. It has no wildcard, because no id has one.
    pub fn topic(&self) -> String {
        let Self { app, client } = self;
        format!("push/{app}/{client}")
    }

    /// Returns true if this topic filter, as the device wrote it, is exactly the device's topic. A
    /// wildcard or a shared subscription (`$share/…`) is not.
    pub fn reads(&self, filter: &str) -> bool {
        let names = filter.strip_prefix("push/").and_then(|rest| rest.split_once('/'));
        names == Some((self.app.as_str(), self.client.as_str()))
    }
}

/// The MQTT client id.
impl fmt::Display for MqttDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.app, self.client)
    }
}

/// Why a text is no device's MQTT client id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMqttDevice {
    /// It has no colon.
    #[error("must be {{AppID}}:{{ClientID}}")]
    Form,
    /// The text before the first colon is no App ID.
    #[error("App ID {0}")]
    App(BadId),
    /// The text behind the first colon is no Client ID.
    #[error("Client ID {0}")]
    Client(BadId),
}

impl FromStr for MqttDevice {
    type Err = BadMqttDevice;

    /// Reads the MQTT client id.
    fn from_str(text: &str) -> Result<Self, BadMqttDevice> {
        let (app, client) = text.split_once(':').ok_or(BadMqttDevice::Form)?;
        Ok(Self {
            app: app.parse().map_err(BadMqttDevice::App)?,
            client: client.parse().map_err(BadMqttDevice::Client)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(text: &str) -> MqttDevice {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_colon_of_an_mqtt_client_id_ends_the_app_id() {
        let named = device("my.app:a:b");
        assert_eq!((named.app.as_str(), named.client.as_str()), ("my.app", "a:b"));
        assert_eq!(named.to_string(), "my.app:a:b");
        assert_eq!(named.topic(), "push/my.app/a:b");
        for bad in ["", "a", "a:", ":b", "a/b", "a:b/c", "a:#", "a b:c"] {
            assert!(bad.parse::<MqttDevice>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_device_reads_its_own_topic_and_nothing_else() {
        let named = device("app:d");
        assert!(named.reads(&named.topic()));
        for other in [
            "",
            "push/app",
            "push/app/",
            "push/app/d/",
            "push/app/d/#",
            "push/app/+",
            "push/+/d",
            "push/app/#",
            "#",
            "push/app/e",
            "push/other/d",
            "$share/g/push/app/d",
            "/push/app/d",
        ] {
            assert!(!named.reads(other), "{other}");
        }
    }
}
