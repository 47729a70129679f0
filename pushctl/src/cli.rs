//! The command tree, and which command needs which engine.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use push_boot::{
    build_info,
    credentials::{CredentialArgs, CredentialSettings},
    engines::{EngineArgs, EngineSettings, IndexUrl, QueueUrl, Stores, open_queue, open_stores},
    settings::ConfigErrors,
    telemetry::{self, LogSettings},
    traces::Traces,
};
use push_index::Index;
use push_queue::Queue;
use tokio::net::TcpListener;

use crate::{
    app::{self, AppCommand},
    audit::{self, AuditCommand},
    broker::{self, BrokerCommandArgs},
    completions::{self, CompletionsArgs},
    dead::{self, DeadCommand},
    device::{self, DeviceCommand, credentials::AppLogins},
    doctor::{self, Deployment, DoctorArgs},
    key::{self, KeyCommand},
    man::{self, ManArgs},
    message::{self, MessageCommand},
    output::{self, Output},
    push::{self, PushArgs},
    reference,
    standalone::{self, StandaloneArgs},
    transfer::moving::{self, MoveArgs},
};

/// The operator's tool of the push service, and the whole service in one process.
///
/// Without --queue-url and --index-url, commands work on the embedded store in --data-dir, also
/// while `pushctl standalone` runs on it.
#[derive(Debug, Parser)]
#[command(
    name = "pushctl",
    version = build_info::VERSION,
    long_version = build_info::LONG_VERSION,
    max_term_width = 100
)]
pub struct Cli {
    /// Print results as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Where the embedded store is
    #[arg(
        long,
        env = "PUSH_DATA_DIR",
        value_name = "DIR",
        default_value = "push-data",
        global = true
    )]
    data_dir: PathBuf,
    #[command(flatten)]
    engines: EngineArgs,
    #[command(flatten)]
    credentials: CredentialArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the whole service in this process: HTTP endpoint, worker, MQTT broker, embedded store
    // Everything is on one machine here, so clients are, too, unless they are told otherwise.
    #[command(mut_arg("listen", |listen| listen.default_value("127.0.0.1:8080")))]
    Standalone(Box<StandaloneArgs>),
    /// Run the MQTT broker alone, for devices and for workers of other processes
    Broker(Box<BrokerCommandArgs>),
    /// Make and change apps
    #[command(subcommand)]
    App(AppCommand),
    /// Register, list and remove devices
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Make, replace and show the keys that sign the MQTT logins of devices
    #[command(subcommand)]
    Key(KeyCommand),
    /// Send a push through the HTTP endpoint, or many from a file with --batch
    Push(PushArgs),
    /// See and recall messages
    #[command(subcommand)]
    Message(MessageCommand),
    /// See, replay and drop dead letters
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Take apps with their devices from one store to another; interrupted, it is run again
    ///
    /// Each app stands still meanwhile: from the beginning on the source takes no pushes and
    /// no registrations for the apps; at the target each one is in service once all its devices are
    /// there and were compared.
    Move(Box<MoveArgs>),
    /// See what was done with pushctl, when and by whom
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Check the engines, their versions, settings that cost memory or safety, certificates, and the
    /// backlog
    Doctor(DoctorArgs),
    /// Print what a shell needs to complete commands and flags
    Completions(CompletionsArgs),
    /// Write the manual of all programs and commands, as pages for `man`
    Man(ManArgs),
    /// Print all settings of all programs, as a page of Markdown
    Reference,
}

/// How a command ends whose output was closed before all was printed: as one that SIGPIPE ended (128 + 13),
/// which shells and scripts take for the usual end of a program before `head`.
const OUTPUT_CLOSED: u8 = 141;

/// Runs the command line. An error is printed with its causes in one line.
pub async fn main(cli: Cli) -> ExitCode {
    let out = Output { json: cli.json };
    match run(cli, out).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_closed(&error) => ExitCode::from(OUTPUT_CLOSED),
        Err(error) => {
            out.note(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli, out: Output) -> anyhow::Result<()> {
    let command = match cli.command {
        Command::Move(args) => return moving::run(*args, &cli.engines, out).await,
        command => command,
    };
    let mut errors = ConfigErrors::default();
    let urls = cli.engines.check_or_embedded(&cli.data_dir, &mut errors);
    let credentials = cli.credentials.check(&mut errors);
    let command = match command {
        Command::Standalone(args) => {
            return standalone::run(*args, urls, credentials, errors, &cli.data_dir, out).await;
        }
        Command::Broker(args) => {
            let data_dir = &cli.data_dir;
            return broker::run(*args, urls, credentials, errors, data_dir, out).await;
        }
        // These are about no installation, so its settings do not matter.
        Command::Completions(args) => return completions::run(&args, out),
        Command::Man(args) => return man::run(&args, out),
        Command::Reference => return reference::run(out),
        command => command,
    };
    let (urls, credentials) = errors.finish(urls.zip(credentials))?;
    match command {
        Command::Standalone(_)
        | Command::Broker(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Move(_)
        | Command::Reference => Ok(()),
        Command::Push(args) => push::run(args, out).await,
        Command::Key(command) => {
            let event = key::audit_event(&command);
            let work = async { key::run(command, &credentials, &cli.data_dir, out) };
            let Some(event) = event else { return work.await };
            telemetry::init(LogSettings::of_audit(cli.json), &Traces::off());
            let index = index_for_key_audit(&urls, &credentials, &cli.data_dir, out).await;
            audit::recorded(index.as_deref(), event, work).await
        }
        Command::Device(DeviceCommand::Credentials { app_id, client_id }) => {
            let credentials = credentials.open_in(&cli.data_dir)?;
            let index = index(&urls, &cli.data_dir).await?;
            let logins = AppLogins::of(&app_id, credentials, &index).await?;
            device::credentials::run(&logins, &client_id, out).await
        }
        Command::Device(DeviceCommand::Listen(args)) => {
            let broker = args.broker()?;
            let credentials = match broker.has_login() {
                true => None,
                false => credentials.open_if_there(&cli.data_dir)?,
            };
            let logins = match credentials {
                Some(credentials) => {
                    let index = index(&urls, &cli.data_dir).await?;
                    Some(AppLogins::of(args.app_id(), credentials, &index).await?)
                }
                None => None,
            };
            device::listen::run(args, broker, logins, out).await
        }
        Command::App(command) => app::run(command, &*index(&urls, &cli.data_dir).await?, out).await,
        Command::Device(command) => {
            device::run(command, &index(&urls, &cli.data_dir).await?, out).await
        }
        Command::Message(command) => {
            let stores = stores(&urls, &cli.data_dir).await?;
            message::run(command, &stores, urls.ledger_retention, out).await
        }
        Command::Dead(command) => {
            let queue = queue(&urls, &cli.data_dir).await?;
            let event = dead::audit_event(&command);
            let work = dead::run(command, &*queue, out);
            let result = match event {
                Some(event) => {
                    let index = index_for_audit(&urls, &cli.data_dir, out).await;
                    audit::recorded(index.as_deref(), event, work).await
                }
                None => work.await,
            };
            queue.close().await;
            result
        }
        Command::Audit(command) => {
            audit::run(command, &*index(&urls, &cli.data_dir).await?, out).await
        }
        Command::Doctor(args) => {
            let deployment = Deployment {
                queue: doctor::open_queue(&urls).await,
                stores: doctor::open_stores(&urls).await,
                engines: &urls,
                device_keys: &credentials.key_file_in(&cli.data_dir),
                data_dir: &cli.data_dir,
                secret_files: cli.engines.secret_files(),
            };
            doctor::run(args, deployment, out).await
        }
    }
}

/// Opens the index.
///
/// # Errors
/// If it cannot be used.
pub(crate) async fn index(
    urls: &EngineSettings,
    data_dir: &std::path::Path,
) -> anyhow::Result<Arc<dyn Index>> {
    Ok(stores(urls, data_dir).await?.index)
}

/// Opens the index and the ledger.
async fn stores(urls: &EngineSettings, data_dir: &std::path::Path) -> anyhow::Result<Stores> {
    if matches!(urls.index, IndexUrl::Sqlite(_)) {
        make_data_dir(data_dir)?;
    }
    Ok(open_stores(urls).await?)
}

/// The index for the audit trail of a command that does not need it otherwise. Without it the
/// command is done all the same, and says that it is not recorded.
async fn index_for_audit(
    urls: &EngineSettings,
    data_dir: &std::path::Path,
    out: Output,
) -> Option<Arc<dyn Index>> {
    let queue_is_embedded = matches!(urls.queue, QueueUrl::Sqlite(_));
    if queue_is_embedded != matches!(urls.index, IndexUrl::Sqlite(_)) {
        out.note("not recorded in the audit trail: --index-url and --queue-url belong together");
        return None;
    }
    reachable_index(urls, data_dir, out).await
}

/// The same for a change of the device keys. It makes no embedded index for that alone, unless the
/// keys are in the data directory as well.
async fn index_for_key_audit(
    urls: &EngineSettings,
    credentials: &CredentialSettings,
    data_dir: &std::path::Path,
    out: Output,
) -> Option<Arc<dyn Index>> {
    if let IndexUrl::Sqlite(file) = &urls.index
        && credentials.key_file.is_some()
        && !file.exists()
    {
        out.note("not recorded in the audit trail: there is no index, name one with --index-url");
        return None;
    }
    reachable_index(urls, data_dir, out).await
}

async fn reachable_index(
    urls: &EngineSettings,
    data_dir: &std::path::Path,
    out: Output,
) -> Option<Arc<dyn Index>> {
    let index = index(urls, data_dir).await;
    index.map_err(|error| out.note(format_args!("not recorded in the audit trail: {error:#}"))).ok()
}

async fn queue(
    urls: &EngineSettings,
    data_dir: &std::path::Path,
) -> anyhow::Result<Arc<dyn Queue>> {
    if matches!(urls.queue, QueueUrl::Sqlite(_)) {
        make_data_dir(data_dir)?;
    }
    open_queue(urls, "pushctl")
        .await
        .with_context(|| format!("cannot use the queue at {}", urls.queue))
}

/// Makes the data directory, readable for its owner only, because it holds devices' tokens.
///
/// # Errors
/// If it cannot be made.
pub fn make_data_dir(dir: &std::path::Path) -> anyhow::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).with_context(|| format!("cannot make the data directory {}", dir.display()))
}

/// Listens on the address of a setting.
///
/// # Errors
/// If the address is taken, or not one of this machine.
pub(crate) async fn bind(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}: choose another address with {flag}"))
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
        for name in ["listen", "mqtt_listen", "ops_listen"] {
            let argument = standalone.get_arguments().find(|argument| argument.get_id() == name);
            let default = argument.unwrap().get_default_values()[0].to_str().unwrap();
            assert!(default.starts_with("127.0.0.1:"), "{name}: {default}");
        }
    }

    #[test]
    fn every_setting_has_the_same_name_as_a_flag_and_in_the_environment() {
        Cli::command().debug_assert();
        check(&Cli::command());
    }
}
