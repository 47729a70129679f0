//! The flags about device credentials, and their check.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use push_credentials::{DeviceCredentials, KeyFile, KeyFileError, token::MAX_TTL};
use push_model::time::UnixMillis;

use crate::{
    settings,
    settings::{ConfigErrors, duration, path},
};

/// The key file of a data directory.
pub const KEY_FILE: &str = "device-keys.json";

/// The shortest life of a token.
const MIN_TTL: Duration = Duration::from_mins(1);

settings! {
    /// The flags about device credentials, before they are checked.
    pub struct CredentialArgs, "Logins of devices" => CredentialValues {
        /// Sign the MQTT logins of devices with the keys of this file, which `pushctl key create` makes.
        /// `ingest` gives devices no logins without it; `pushctl` takes `device-keys.json` in its data
        /// directory
        device_keys: Option<PathBuf> = ["FILE"] path;
        /// Accept the MQTT login of a device, and the token for its record, for this time
        device_token_ttl: Duration = ["TIME", "7days"] token_ttl;
        /// Tell devices, in the answer to their registration, to connect to this URL: `mqtt://`, `mqtts://`,
        /// `ws://` or `wss://`. `standalone` tells them its own address unless it listens on all
        mqtt_device_url: Option<String> = ["URL"] device_url;
        /// Tell browsers, in the same answer, to connect to this URL with MQTT over WebSocket: `ws://` or `wss://`,
        /// with the path. `standalone` tells them that of its --mqtt-ws-listen unless it listens on all
        mqtt_ws_device_url: Option<String> = ["URL"] websocket_url;
    }
}

/// The checked settings of device credentials.
#[derive(Debug, Clone)]
pub struct CredentialSettings {
    /// The key file, if one is set.
    pub key_file: Option<PathBuf>,
    /// The time for which a token is accepted.
    pub token_ttl: Duration,
    /// The URL of the broker for devices.
    pub url: Option<String>,
    /// The URL of the broker for devices that need WebSocket.
    pub websocket_url: Option<String>,
}

impl CredentialArgs {
    /// Checks the flags; problems are added to `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<CredentialSettings> {
        let given = self.values(errors)?;
        Some(CredentialSettings {
            key_file: given.device_keys,
            token_ttl: given.device_token_ttl,
            url: given.mqtt_device_url,
            websocket_url: given.mqtt_ws_device_url,
        })
    }
}

fn token_ttl(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        ttl if (MIN_TTL..=MAX_TTL).contains(&ttl) => Ok(ttl),
        _ => Err("must be from 1min to 366days".to_owned()),
    }
}

/// Checks the URL that every device is told.
fn device_url(text: &str) -> Result<String, String> {
    let must = "must be mqtt://host[:port], or the same with mqtts, ws or wss";
    url_without_login(text, &["mqtt", "mqtts", "ws", "wss"], must)
}

/// Checks the URL that every browser is told.
fn websocket_url(text: &str) -> Result<String, String> {
    let must = "must be ws://host[:port]/mqtt or wss://host[:port]/mqtt";
    url_without_login(text, &["ws", "wss"], must)
}

fn url_without_login(text: &str, schemes: &[&str], must: &str) -> Result<String, String> {
    let url = url::Url::parse(text).map_err(|_| must.to_owned())?;
    if !schemes.contains(&url.scheme()) || url.host_str().is_none_or(str::is_empty) {
        return Err(must.to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must have no user and no password: each device is told its own".to_owned());
    }
    Ok(text.to_owned())
}

impl CredentialSettings {
    /// Reads the key file, if one is set.
    ///
    /// # Errors
    /// If it cannot be read, or holds no keys.
    pub fn open(&self) -> Result<Option<DeviceCredentials>, KeyFileError> {
        let open = |path: &PathBuf| KeyFile::open(path).map(|file| self.with_keys(Arc::new(file)));
        self.key_file.as_ref().map(open).transpose()
    }

    /// Reads the key file that is set, or else the one in the data directory.
    ///
    /// # Errors
    /// If it cannot be read, or holds no keys.
    pub fn open_in(&self, data_dir: &Path) -> Result<DeviceCredentials, KeyFileError> {
        KeyFile::open(&self.key_file_in(data_dir)).map(|file| self.with_keys(Arc::new(file)))
    }

    /// Reads the key file like [`CredentialSettings::open_in`]. Returns `None` if no key file is
    /// set and the data directory has none.
    ///
    /// # Errors
    /// If there is a key file, or one is set, and it cannot be read or holds no keys.
    pub fn open_if_there(
        &self,
        data_dir: &Path,
    ) -> Result<Option<DeviceCredentials>, KeyFileError> {
        if self.key_file.is_none() && !self.key_file_in(data_dir).exists() {
            return Ok(None);
        }
        self.open_in(data_dir).map(Some)
    }

    /// Reads the key file that is set, which must exist, or else the one in the data directory,
    /// which is created with a new key if it is missing.
    ///
    /// # Errors
    /// If the file can be neither read nor created.
    pub fn open_or_create_in(&self, data_dir: &Path) -> Result<DeviceCredentials, KeyFileError> {
        let file = match &self.key_file {
            Some(path) => KeyFile::open(path),
            None => KeyFile::open_or_create(&self.key_file_in(data_dir), UnixMillis::now()),
        };
        file.map(|file| self.with_keys(Arc::new(file)))
    }

    /// Issues and checks logins with these keys.
    fn with_keys(&self, keys: Arc<KeyFile>) -> DeviceCredentials {
        DeviceCredentials::new(keys, self.token_ttl)
            .with_url(self.url.as_deref())
            .with_websocket_url(self.websocket_url.as_deref())
    }

    /// Returns the path of the key file that is set, or else of the one in the data directory.
    pub fn key_file_in(&self, data_dir: &Path) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| data_dir.join(KEY_FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_of_a_token_has_a_unit_and_is_bounded() {
        assert_eq!(token_ttl("7days"), Ok(Duration::from_hours(7 * 24)));
        for wrong in ["7", "59s", "367days", "0s"] {
            assert!(token_ttl(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn devices_are_told_a_url_of_mqtt_without_a_login() {
        for url in ["mqtt://mqtt.example.com", "mqtts://[::1]:8883", "wss://example.com/mqtt"] {
            assert_eq!(device_url(url), Ok(url.to_owned()));
        }
        for wrong in ["example.com:1883", "http://example.com", "mqtt://", "mqtt://a:b@host", ""] {
            assert!(device_url(wrong).is_err(), "{wrong}");
        }
        let browsers = "wss://push.example.com/mqtt";
        assert_eq!(websocket_url(browsers), Ok(browsers.to_owned()));
        for wrong in ["mqtts://push.example.com", "wss://a:b@host/mqtt", "wss://"] {
            assert!(websocket_url(wrong).is_err(), "{wrong}");
        }
    }
}
