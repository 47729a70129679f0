//! The command tree.

use std::path::PathBuf;

use clap::{Arg, Parser, Subcommand};
use push_boot::{
    build_info, credentials::CredentialArgs, engines::EngineArgs, seal::SealArgs, tune::TuneArgs,
};

use crate::{
    access::{admin_key::AdminKeyCommand, key::KeyCommand},
    app::AppCommand,
    app::attribute::AttributeCommand,
    audit::AuditCommand,
    dead::DeadCommand,
    device::DeviceCommand,
    device::user::UserCommand,
    doctor::DoctorArgs,
    help::{completions::CompletionsArgs, man::ManArgs},
    message::MessageCommand,
    push::{PushArgs, audience::AudienceArgs},
    server::{DATA_DIR, profile::ProfileCommand},
    services::{
        broker::BrokerCommandArgs, console::ConsoleCommandArgs, standalone::StandaloneArgs,
    },
    transfer::MoveArgs,
};

/// The operator's tool of the push service, and the whole service in one process.
///
/// Without --queue-url and --index-url, commands work on the embedded store in --data-dir, even
/// while `pushctl standalone` runs on it.
#[derive(Debug, Parser)]
#[command(
    name = "pushctl",
    version = build_info::VERSION,
    long_version = build_info::LONG_VERSION,
    max_term_width = 100,
    // Flags of every command can be written behind its name, too.
    mut_args(|flag| in_long_help(flag).global(true))
)]
pub struct Cli {
    /// Print results as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep the embedded store in this directory
    #[arg(
        long,
        help_heading = "Queue and stores",
        env = "PUSH_DATA_DIR",
        value_name = "DIR",
        default_value = DATA_DIR
    )]
    pub(crate) data_dir: PathBuf,
    #[command(flatten)]
    pub(crate) engines: EngineArgs,
    #[command(flatten)]
    pub(crate) tune: TuneArgs,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
    #[command(flatten)]
    pub(crate) seal: SealArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole service in this process: HTTP endpoint, worker, MQTT broker, embedded store
    // Everything runs on one machine here, so its clients do too by default.
    #[command(mut_arg("listen", |listen| listen.default_value("127.0.0.1:8080")))]
    Standalone(Box<StandaloneArgs>),
    /// Run the MQTT broker alone, for devices and for workers of other processes
    Broker(Box<BrokerCommandArgs>),
    /// Run the admin API alone, for operators of a service whose programs run elsewhere
    #[command(mut_arg("fcm_quota", |quota| quota.hide(true)))]
    Console(Box<ConsoleCommandArgs>),
    /// Make, list and revoke keys of the admin API
    #[command(subcommand)]
    AdminKey(AdminKeyCommand),
    /// Make and change apps
    #[command(subcommand)]
    App(AppCommand),
    /// Declare, list and remove attributes of an app's own
    #[command(subcommand)]
    Attribute(AttributeCommand),
    /// Register, list and remove devices
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Show and remove the devices of a user
    #[command(subcommand)]
    User(UserCommand),
    /// Make, replace and show the keys that sign the MQTT logins of devices
    #[command(subcommand)]
    Key(KeyCommand),
    /// Send a push through the HTTP endpoint, or many from a file with --batch
    Push(Box<PushArgs>),
    /// Count the devices that a push would target, in all, by transport and after each criterion
    Audience(Box<AudienceArgs>),
    /// Keep servers and secrets for later commands
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Show, watch and recall messages
    #[command(subcommand)]
    Message(MessageCommand),
    /// List, replay and drop dead letters
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Move apps with their devices from one store to another; run it again if it was interrupted
    ///
    /// Each app stands still meanwhile: from the start on, the source takes no pushes and no
    /// registrations for it. It is in service at the target once all its devices are there and were
    /// compared.
    Move(Box<MoveArgs>),
    /// List what operators did, when and by whom
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Check the engines, their versions, settings that cost memory or safety, certificates, and the
    /// backlog
    #[command(mut_arg("fcm_quota", |quota| quota.hide(true)))]
    Doctor(Box<DoctorArgs>),
    /// Print a script with which a shell completes commands and flags
    Completions(CompletionsArgs),
    /// Write the manual of all programs and commands, as pages for `man`
    Man(ManArgs),
    /// Print all settings of all programs, as a page of Markdown
    Reference,
}

/// Leaves a flag out of the short help if it stands under a heading: flags about queue, stores and keys are
/// the same for every command.
fn in_long_help(flag: Arg) -> Arg {
    let is_common = flag.get_help_heading().is_some();
    flag.hide_short_help(is_common)
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};
    use push_boot::settings::variable;

    use super::*;

    fn check(command: &Command) {
        for argument in command.get_arguments() {
            if let (Some(flag), Some(name)) = (argument.get_long(), argument.get_env()) {
                assert_eq!(name.to_str(), Some(variable(flag).as_str()), "--{flag}");
            }
        }
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn standalone_listens_on_this_machine_only_unless_it_is_told_otherwise() {
        let command = Cli::command();
        let standalone = command.find_subcommand("standalone").unwrap();
        for name in ["listen", "mqtt_listen", "ops_listen", "admin_listen"] {
            let argument = standalone.get_arguments().find(|argument| argument.get_id() == name);
            let default = argument.unwrap().get_default_values()[0].to_str().unwrap();
            assert!(default.starts_with("127.0.0.1:"), "{name}: {default}");
        }
    }

    #[test]
    fn the_short_help_of_a_command_shows_its_own_flags_and_those_about_the_server() {
        for (path, own) in [
            (&["push"][..], "--title"),
            (&["message", "watch"], "--timeout"),
            (&["profile", "add"], "--secret-file"),
            (&["device", "put"], "--country"),
        ] {
            let mut command = Cli::command();
            let words = [&["pushctl"], path, &["-h"]].concat();
            let help = command.try_get_matches_from_mut(words).unwrap_err().to_string();
            let (options, server) = help.split_once("\nServer:").unwrap();
            for flag in ["--server", "--profile", "--secret-file"] {
                assert!(server.contains(flag), "{path:?}: {help}");
            }
            assert!(own == "--secret-file" || options.contains(own), "{path:?}: {help}");
        }
    }

    #[test]
    fn every_setting_has_the_same_name_as_a_flag_and_in_the_environment() {
        Cli::command().debug_assert();
        check(&Cli::command());
    }
}
