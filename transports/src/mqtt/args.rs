//! The flags about the MQTT broker: its URL and certificates.

use push_boot::{
    settings,
    settings::{ConfigErrors, text},
    tls::{self, ClientFlags},
};
use push_mqtt::{BadMqttUrl, MqttUrl};

settings! {
    /// Flags about the URL and the certificates of the broker, for every program that connects to one.
    pub struct MqttBrokerArgs, "MQTT" => MqttBrokerValues {
        /// Reach devices through the broker at this URL: `mqtt://[user:password@]host[:port]`, or `mqtts://…`
        mqtt_url or mqtt_url_file: Option<MqttUrl> = ["URL"] url;
        /// Trust the authorities of this PEM file for `mqtts://`, instead of the machine's
        mqtt_ca: Option<String> = ["FILE"] text;
        /// Show the certificate of this PEM file to the broker, for `mqtts://`
        mqtt_cert: Option<String> = ["FILE"] text;
        /// Use the private key of this PEM file with --mqtt-cert
        mqtt_key: Option<String> = ["FILE"] text;
    }
}

fn url(text: &str) -> Result<MqttUrl, String> {
    text.parse().map_err(|bad: BadMqttUrl| bad.to_string())
}

impl MqttBrokerArgs {
    /// Checks the flags and returns the broker's URL with its TLS settings. `default` is the URL if
    /// none is given. Returns `Some(None)` if there is no broker, and `None` if something is wrong,
    /// which goes into `errors`. A file for TLS is wrong without a URL that asks for TLS.
    pub fn check(
        &self,
        default: Option<&str>,
        errors: &mut ConfigErrors,
    ) -> Option<Option<MqttUrl>> {
        let given = self.values(errors).map(|given| given.mqtt_url);
        let url = match (given, default) {
            (Some(None), Some(default)) => errors.read("--mqtt-url", default, url).map(Some),
            (given, _) => given,
        };
        let flags = ClientFlags {
            authorities: ("--mqtt-ca", self.mqtt_ca.as_ref()),
            certificate: ("--mqtt-cert", self.mqtt_cert.as_ref()),
            key: ("--mqtt-key", self.mqtt_key.as_ref()),
            schemes: "mqtts://",
        };
        let encrypted = url.as_ref().map(|url| url.as_ref().is_some_and(MqttUrl::uses_tls));
        let tls = tls::client(flags, encrypted, errors)?;
        Some(url?.map(|url| url.with_tls(tls)))
    }
}
