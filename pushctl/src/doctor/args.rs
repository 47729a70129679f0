//! The settings of the other programs, under their names.

use std::path::PathBuf;

use push_boot::{settings, settings::ConfigErrors};
use push_mqtt::MqttUrl;
use push_operator::{doctor::Listener, server::Server};
use push_transports::{
    http::{HttpArgs, HttpSettings},
    mqtt::MqttBrokerArgs,
};

use super::listeners::ListenerArgs;

/// Settings of the other programs, so that `doctor` can look at how they are reached.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    broker: MqttBrokerArgs,
    #[command(flatten)]
    listeners: ListenerArgs,
    #[command(flatten)]
    programs: ProgramArgs,
    #[command(flatten)]
    providers: HttpArgs,
}

settings! {
    /// Where running programs are asked.
    struct ProgramArgs, "Running programs" => ProgramValues {
        /// The URL of `ingest`, to compare its clock with that of this machine
        server: Option<Server> = ["URL"] Server::parse;
        /// RabbitMQ's management plugin (`http://host:15672`), to look for policies that drop messages;
        /// the login is that of --queue-url
        management: Option<Server> = ["URL"] Server::parse;
        /// The operations listeners of running programs (`http://host:9080,http://host:9081`), to ask
        /// whether they are ready and which version they are
        ops: Option<Vec<Server>> = ["URLS"] servers;
    }
}

fn servers(text: &str) -> Result<Vec<Server>, String> {
    text.split(',').map(|url| Server::parse(url.trim())).collect()
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
    pub(super) secret_files: Vec<(String, PathBuf)>,
    pub(super) listeners: Vec<Listener>,
    /// How providers are reached.
    pub(super) providers: HttpSettings,
}

impl DoctorArgs {
    pub(super) fn check(self) -> Result<DoctorSettings, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let secret_files = self.broker.secret_files();
        let mqtt = self.broker.check(None, &mut errors);
        let programs = self.programs.values(&mut errors);
        let listeners = self.listeners.check(&mut errors);
        let providers = self.providers.check(&mut errors);
        let settings = (|| {
            let ProgramValues { server, management, ops } = programs?;
            Some(DoctorSettings {
                mqtt: mqtt?,
                server,
                management,
                ops: ops.unwrap_or_default(),
                secret_files,
                listeners: listeners?,
                providers: providers?,
            })
        })();
        errors.finish(settings)
    }
}
