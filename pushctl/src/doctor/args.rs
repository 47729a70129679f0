//! What `doctor` is told besides the engines: the settings of the other programs, under their names.

use std::{net::SocketAddr, path::PathBuf};

use push_fanout_worker::MqttBrokerArgs;
use push_mqtt::MqttUrl;
use push_service::settings::{ConfigErrors, address};

use super::encryption::ListenerInfo;
use crate::push::Server;

/// Settings of the other programs, so that `doctor` can look at how they are reached.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    broker: MqttBrokerArgs,
    /// Where `ingest` listens
    #[arg(long, env = "PUSH_LISTEN", value_name = "ADDRESS")]
    listen: Option<String>,
    /// The certificate of `ingest`'s listener, if it has one
    #[arg(long, env = "PUSH_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Where the broker of `standalone` listens
    #[arg(long, env = "PUSH_MQTT_LISTEN", value_name = "ADDRESS")]
    mqtt_listen: Option<String>,
    /// The certificate of that broker's listener, if it has one
    #[arg(long, env = "PUSH_MQTT_TLS_CERT", value_name = "FILE")]
    mqtt_tls_cert: Option<PathBuf>,
    /// Where `ingest` is reached, to compare its clock with that of this machine
    #[arg(long, env = "PUSH_SERVER", value_name = "URL")]
    server: Option<String>,
    /// RabbitMQ's management plugin (`http://host:15672`), to look for policies that drop messages;
    /// the login is that of --queue-url
    #[arg(long, env = "PUSH_MANAGEMENT", value_name = "URL")]
    management: Option<String>,
}

/// The checked settings.
#[derive(Debug)]
pub(super) struct DoctorSettings {
    pub(super) mqtt: Option<MqttUrl>,
    pub(super) server: Option<Server>,
    pub(super) management: Option<Server>,
    /// The files of passwords, each with its flag.
    pub(super) secret_files: Vec<(&'static str, PathBuf)>,
    listen: Option<(SocketAddr, Option<PathBuf>)>,
    mqtt_listen: Option<(SocketAddr, Option<PathBuf>)>,
}

impl DoctorArgs {
    pub(super) fn check(self) -> Result<DoctorSettings, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let secret_files = self.broker.secret_files();
        let mqtt = self.broker.check(None, &mut errors);
        let mut url = |flag, text: Option<String>| match text {
            None => Some(None),
            Some(text) => Some(Some(errors.read(flag, &text, Server::parse)?)),
        };
        let server = url("--server", self.server);
        let management = url("--management", self.management);
        let mut listener = |flag, text: Option<String>, certificate| match text {
            None => Some(None),
            Some(text) => Some(Some((errors.read(flag, &text, address)?, certificate))),
        };
        let listen = listener("--listen", self.listen, self.tls_cert);
        let mqtt_listen = listener("--mqtt-listen", self.mqtt_listen, self.mqtt_tls_cert);
        let settings = (|| {
            Some(DoctorSettings {
                mqtt: mqtt?,
                server: server?,
                management: management?,
                secret_files,
                listen: listen?,
                mqtt_listen: mqtt_listen?,
            })
        })();
        errors.finish(settings)
    }
}

impl DoctorSettings {
    /// The listeners that the settings describe.
    pub(super) fn listeners(&self) -> impl Iterator<Item = ListenerInfo<'_>> {
        let all = [
            ("HTTP listener", &self.listen, "--tls-cert and --tls-key"),
            ("MQTT listener", &self.mqtt_listen, "--mqtt-tls-cert and --mqtt-tls-key"),
        ];
        all.into_iter().filter_map(|(name, listener, tls_flags)| {
            let (address, certificate) = listener.as_ref()?;
            let (address, certificate) = (*address, certificate.as_deref());
            Some(ListenerInfo { name, address, certificate, tls_flags })
        })
    }
}
