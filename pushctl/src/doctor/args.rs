//! The settings of the other programs, under their names.

use std::path::PathBuf;

use push_boot::settings::ConfigErrors;
use push_mqtt::MqttUrl;
use push_operator::{doctor::Listener, server::Server};
use push_transports::mqtt::MqttBrokerArgs;

use super::listeners::ListenerArgs;

/// Settings of the other programs, so that `doctor` can look at how they are reached.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    broker: MqttBrokerArgs,
    #[command(flatten)]
    listeners: ListenerArgs,
    /// The URL of `ingest`, to compare its clock with that of this machine
    #[arg(long, env = "PUSH_SERVER", value_name = "URL")]
    server: Option<String>,
    /// RabbitMQ's management plugin (`http://host:15672`), to look for policies that drop messages;
    /// the login is that of --queue-url
    #[arg(long, env = "PUSH_MANAGEMENT", value_name = "URL")]
    management: Option<String>,
    /// The operations listeners of running programs (`http://host:9080,http://host:9081`), to ask
    /// whether they are ready and which version they are
    #[arg(long, env = "PUSH_OPS", value_name = "URLS")]
    ops: Option<String>,
}

/// The checked settings.
#[derive(Debug)]
pub(super) struct DoctorSettings {
    pub(super) mqtt: Option<MqttUrl>,
    pub(super) server: Option<Server>,
    pub(super) management: Option<Server>,
    /// The operations listeners of running programs.
    pub(super) ops: Vec<Server>,
    /// The files of passwords, each with its flag.
    pub(super) secret_files: Vec<(&'static str, PathBuf)>,
    pub(super) listeners: Vec<Listener>,
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
        let ops = match self.ops {
            None => Some(Vec::new()),
            Some(text) => errors.read("--ops", &text, |text| {
                text.split(',').map(|url| Server::parse(url.trim())).collect()
            }),
        };
        let listeners = self.listeners.check(&mut errors);
        let settings = (|| {
            Some(DoctorSettings {
                mqtt: mqtt?,
                server: server?,
                management: management?,
                ops: ops?,
                secret_files,
                listeners: listeners?,
            })
        })();
        errors.finish(settings)
    }
}
