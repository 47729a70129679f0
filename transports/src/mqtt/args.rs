//! The flags about the MQTT broker: where it is, and how it is used.

use std::path::PathBuf;

use push_boot::{
    secret::{SecretSetting, SecretText},
    settings::{ConfigErrors, count, duration},
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

/// Where the broker is, for every program that connects to one.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "MQTT")]
pub struct MqttBrokerArgs {
    /// The broker: `mqtt://[user:password@]host[:port]`, or `mqtts://…`
    #[arg(long, env = "PUSH_MQTT_URL", value_name = "URL")]
    mqtt_url: Option<SecretText>,
    /// The file that holds the URL of the broker, in place of --mqtt-url
    #[arg(long, env = "PUSH_MQTT_URL_FILE", value_name = "FILE")]
    mqtt_url_file: Option<PathBuf>,
    /// For `mqtts://`: the authorities that are trusted instead of the machine's, as PEM
    #[arg(long, env = "PUSH_MQTT_CA", value_name = "FILE")]
    mqtt_ca: Option<String>,
    /// For `mqtts://`: the certificate that is shown to the broker, as PEM
    #[arg(long, env = "PUSH_MQTT_CERT", value_name = "FILE")]
    mqtt_cert: Option<String>,
    /// The private key of `--mqtt-cert`, as PEM
    #[arg(long, env = "PUSH_MQTT_KEY", value_name = "FILE")]
    mqtt_key: Option<String>,
}

/// Flags about the use of a broker, for programs that know its address from elsewhere.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "MQTT")]
pub struct MqttTuningArgs {
    /// Connections that share broadcasts; one more carries small pushes
    #[arg(long, env = "PUSH_MQTT_CONNECTIONS", value_name = "N", default_value = "4")]
    mqtt_connections: String,
    /// The most unacknowledged messages of a connection; the broker may lower it
    #[arg(long, env = "PUSH_MQTT_WINDOW", value_name = "N", default_value = "512")]
    mqtt_window: String,
    /// How long connecting to the broker may take
    #[arg(long, env = "PUSH_MQTT_CONNECT_TIMEOUT", value_name = "TIME", default_value = "5s")]
    mqtt_connect_timeout: String,
    /// How long the broker may take to acknowledge a message
    #[arg(long, env = "PUSH_MQTT_ACK_TIMEOUT", value_name = "TIME", default_value = "10s")]
    mqtt_ack_timeout: String,
    /// How long a batch waits for a lost broker before it is put off
    #[arg(
        long = "mqtt-patience",
        env = "PUSH_MQTT_PATIENCE",
        value_name = "TIME",
        default_value = "5s"
    )]
    mqtt_offline_timeout: String,
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

    /// The broker, with what its TLS needs; `default` is its URL if none is given. `Some(None)` if
    /// there is none, `None` if something is wrong, which goes into `errors`: a file for TLS is wrong
    /// without a URL that asks for TLS.
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
        let connections = errors.read(
            "--mqtt-connections",
            &self.mqtt_connections,
            count(1, MqttSettings::MAX_CONNECTIONS),
        );
        let window = errors.read("--mqtt-window", &self.mqtt_window, count(1, u16::MAX));
        let mut time = |flag, text| errors.read(flag, text, duration);
        let connect_timeout = time("--mqtt-connect-timeout", &self.mqtt_connect_timeout);
        let ack_timeout = time("--mqtt-ack-timeout", &self.mqtt_ack_timeout);
        let offline_timeout = time("--mqtt-patience", &self.mqtt_offline_timeout);
        Some(MqttSettings {
            connections: connections?,
            window: window?,
            connect_timeout: connect_timeout?,
            ack_timeout: ack_timeout?,
            offline_timeout: offline_timeout?,
            ..MqttSettings::default()
        })
    }
}
