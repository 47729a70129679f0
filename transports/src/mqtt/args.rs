//! The flags about the MQTT broker: its URL and certificates, and the connections to it.

use std::path::PathBuf;

use push_boot::{
    secret::{SecretSetting, SecretText},
    settings,
    settings::{ConfigErrors, count},
    tls::{self, ClientFlags},
};
use push_mqtt::{BadMqttUrl, MqttUrl};

use super::MqttSettings;

/// Flags about the MQTT broker.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "MQTT")]
pub struct MqttArgs {
    #[command(flatten)]
    broker: MqttBrokerArgs,
    #[command(flatten)]
    tuning: MqttTuningArgs,
}

/// Flags about the URL and the certificates of the broker, for every program that connects to one.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "MQTT")]
pub struct MqttBrokerArgs {
    /// Reach devices through the broker at this URL: `mqtt://[user:password@]host[:port]`, or `mqtts://…`
    #[arg(long, env = "PUSH_MQTT_URL", value_name = "URL")]
    mqtt_url: Option<SecretText>,
    /// Read --mqtt-url from this file
    #[arg(long, env = "PUSH_MQTT_URL_FILE", value_name = "FILE")]
    mqtt_url_file: Option<PathBuf>,
    /// Trust the authorities of this PEM file for `mqtts://`, instead of the machine's
    #[arg(long, env = "PUSH_MQTT_CA", value_name = "FILE")]
    mqtt_ca: Option<String>,
    /// Show the certificate of this PEM file to the broker, for `mqtts://`
    #[arg(long, env = "PUSH_MQTT_CERT", value_name = "FILE")]
    mqtt_cert: Option<String>,
    /// Use the private key of this PEM file with --mqtt-cert
    #[arg(long, env = "PUSH_MQTT_KEY", value_name = "FILE")]
    mqtt_key: Option<String>,
}

settings! {
    /// Flags about the use of a broker, for programs that know its address from elsewhere.
    pub struct MqttTuningArgs, "MQTT" => MqttValues {
        /// Share broadcasts among so many connections; one more carries small pushes
        mqtt_connections: usize = ["N", "4"] count(1, MqttSettings::MAX_CONNECTIONS);
        /// Limit the unacknowledged messages of a connection; the broker may lower it
        mqtt_window: u16 = ["N", "512"] count(1, u16::MAX);
    }
}

impl MqttArgs {
    /// Checks the flags; what is wrong goes into `errors`. Without a URL there is no MQTT.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<Option<(MqttUrl, MqttSettings)>> {
        let tuning = self.tuning.check(errors);
        let url = self.broker.check(None, errors)?;
        let tuning = tuning?;
        Some(url.map(|url| (url, tuning)))
    }
}

impl MqttBrokerArgs {
    /// The file of the URL, if there is one, with its flag: it may hold a password.
    pub fn secret_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.mqtt_url_file.iter().map(|file| ("--mqtt-url-file", file.clone())).collect()
    }

    /// Checks the flags and returns the broker's URL with its TLS settings. `default` is the URL if
    /// none is given. Returns `Some(None)` if there is no broker, and `None` if something is wrong,
    /// which goes into `errors`. A file for TLS is wrong without a URL that asks for TLS.
    pub fn check(
        &self,
        default: Option<&str>,
        errors: &mut ConfigErrors,
    ) -> Option<Option<MqttUrl>> {
        const URL: &str = "--mqtt-url";
        let setting =
            SecretSetting { text: self.mqtt_url.as_ref(), file: self.mqtt_url_file.as_deref() };
        let parse = |url: &str| url.parse().map_err(|bad: BadMqttUrl| bad.to_string());
        let url: Option<Option<MqttUrl>> = match (errors.read_secret(URL, setting, parse), default)
        {
            (Some(None), Some(default)) => errors.read(URL, default, parse).map(Some),
            (url, _) => url,
        };
        let flags = ClientFlags {
            authorities: ("--mqtt-ca", self.mqtt_ca.as_deref()),
            certificate: ("--mqtt-cert", self.mqtt_cert.as_deref()),
            key: ("--mqtt-key", self.mqtt_key.as_deref()),
            schemes: "mqtts://",
        };
        let encrypted = url.as_ref().map(|url| url.as_ref().is_some_and(MqttUrl::uses_tls));
        let tls = tls::client(flags, encrypted, errors)?;
        Some(url?.map(|url| url.with_tls(tls)))
    }
}

impl MqttTuningArgs {
    /// Checks the flags; what is wrong goes into `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<MqttSettings> {
        let settings = MqttSettings::read(errors.tuning());
        let MqttValues { mqtt_connections, mqtt_window } = self.values(errors)?;
        Some(MqttSettings { connections: mqtt_connections, window: mqtt_window, ..settings })
    }
}
