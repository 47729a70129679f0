//! Runs commands: opens the engines that each one needs.

use std::{
    path::{self, Path},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, ensure};
use push_boot::{
    command_line,
    credentials::CredentialSettings,
    data_dir,
    engines::{EngineSettings, IndexUrl, QueueUrl, Stores, open_queue, open_stores},
    log::{self, LogSettings},
    seal::SealSettings,
    settings::ConfigErrors,
    traces::Traces,
};
use push_credentials::SealFile;
use push_index::Index;
use push_operator::{
    access::rabbitmq_commands, audit::Actor, device::AppLogins, profile::DEFAULT_SERVER,
};
use push_queue::Queue;

use crate::{
    access::{admin_key, key},
    app, audit,
    cli::{Cli, Command},
    dead,
    device::{self, DeviceCommand},
    doctor::{self, Installation},
    help::{completions, man, reference},
    message::{self, Source},
    output::{self, Output},
    push::{self, audience},
    server::profile,
    services::{broker, console, standalone},
    transfer,
};

/// The name of this program in the audit trail and at servers.
const PROGRAM: &str = "pushctl";

/// The files of the embedded stores in a data directory.
const STORES: [&str; 2] = ["index.sqlite3", "queue.sqlite3"];

/// The time for which a command looks for a service on this machine.
const LOOK: Duration = Duration::from_millis(300);

/// The exit code of a command whose output was closed before everything was printed: that of a
/// program killed by SIGPIPE (128 + 13), which scripts know from `… | head`.
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
    let actor = Actor::of_process(PROGRAM);
    let command = match cli.command {
        Command::Move(args) => {
            return transfer::move_from(*args, &cli.engines, &actor, out).await;
        }
        // These are about no installation, so its settings do not matter.
        Command::Completions(args) => {
            return completions::run(&args, &command_line::command::<Cli>(), out);
        }
        // These talk to a server, or write down how.
        Command::Push(args) => return push::run(*args, out).await,
        Command::Audience(args) => return audience::run(*args, out).await,
        Command::Profile(command) => return profile::run(command, out).await,
        Command::Man(args) => return man::run(&args, &command_line::command::<Cli>(), out),
        Command::Reference => return reference::run(&command_line::command::<Cli>(), out),
        command => command,
    };
    // A command that runs no service has few of the constants, so it takes none.
    let mut errors = match &command {
        Command::Standalone(_) | Command::Broker(_) | Command::Console(_) => {
            ConfigErrors::tuned(&cli.tune)
        }
        _ => ConfigErrors::default(),
    };
    let data_dir = cli.data_dir.as_path();
    let urls = cli.engines.check_or_embedded(data_dir, &mut errors);
    let credentials = cli.credentials.check(&mut errors).zip(cli.seal.check(&mut errors));
    let command = match command {
        Command::Standalone(args) => {
            return standalone::run(*args, urls, credentials, errors, data_dir, out).await;
        }
        Command::Broker(args) => {
            let credentials = credentials.map(|(credentials, _)| credentials);
            return broker::run(*args, urls, credentials, errors, data_dir, out).await;
        }
        Command::Console(args) => {
            return console::run(*args, urls, credentials, errors, data_dir, out).await;
        }
        command => command,
    };
    let (urls, (credentials, seal)) = errors.finish(urls.zip(credentials))?;
    match command {
        Command::Standalone(_)
        | Command::Audience(_)
        | Command::Broker(_)
        | Command::Console(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Move(_)
        | Command::Push(_)
        | Command::Profile(_)
        | Command::Reference => Ok(()),
        Command::Key(command) => {
            let mut index = None;
            if command.is_change() {
                log::init(LogSettings::of_audit(cli.json), &Traces::off());
                index = index_for_key_audit(&urls, &credentials, data_dir, out).await;
            }
            let seal_keys = || seal_keys(&seal, &urls, data_dir);
            key::run(command, &credentials, seal_keys, data_dir, index.as_deref(), &actor, out)
                .await
        }
        Command::Device(DeviceCommand::Credentials { app_id, client_id }) => {
            let credentials = credentials.open_in(data_dir)?;
            let index = index(&urls).await?;
            let logins = AppLogins::of(&app_id, credentials, &index).await?;
            device::print_login(&logins, &client_id, out).await
        }
        Command::Device(DeviceCommand::Listen(args)) => {
            let broker = args.broker()?;
            let credentials = match broker.has_login() {
                true => None,
                false => credentials.open_if_there(data_dir)?,
            };
            let logins = match credentials {
                Some(credentials) => {
                    let index = index(&urls).await?;
                    Some(AppLogins::of(args.app_id(), credentials, &index).await?)
                }
                None => None,
            };
            device::listen::run(args, broker, logins, out).await
        }
        Command::AdminKey(command) => {
            let (index, note) = match command.makes_store() {
                true => index_or_make(&urls, data_dir).await?,
                false => (index(&urls).await?, None),
            };
            admin_key::run(command, &*index, &actor, out).await?;
            note.into_iter().for_each(|note| out.note(note));
            Ok(())
        }
        Command::App(command) => {
            let (index, note) = match command.makes_store() {
                true => index_or_make(&urls, data_dir).await?,
                false => (index(&urls).await?, None),
            };
            let seal_keys = || seal_keys(&seal, &urls, data_dir);
            app::run(command, &*index, seal_keys, &actor, out).await?;
            note.into_iter().for_each(|note| out.note(note));
            Ok(())
        }
        Command::Attribute(command) => {
            app::attribute::run(command, &*index(&urls).await?, &actor, out).await
        }
        Command::User(command) => {
            device::user::run(command, &*index(&urls).await?, &actor, out).await
        }
        Command::Device(command) => {
            let client = match command.server() {
                Some((server, app)) => server.client_if_asked(app, &urls, out)?,
                None => None,
            };
            match client {
                Some(client) => device::remote::run(command, &client, out).await,
                None => device::run(command, &index(&urls).await?, out).await,
            }
        }
        Command::Message(command) => {
            let client = command.server().client_if_asked(command.app_id(), &urls, out)?;
            let source = match client {
                Some(client) => Source::Server(client),
                None => Source::Stores(stores(&urls).await?, urls.ledger_retention),
            };
            message::run(command, &source, &actor, out).await
        }
        Command::Dead(command) => {
            let queue = queue(&urls).await?;
            let index = match command.is_change() {
                true => index_for_audit(&urls, out).await,
                false => None,
            };
            let result = dead::run(command, &*queue, index.as_deref(), &actor, out).await;
            queue.close().await;
            result
        }
        Command::Audit(command) => audit::run(command, &*index(&urls).await?, out).await,
        Command::Doctor(args) => {
            let installation = Installation {
                engines: &urls,
                program: PROGRAM,
                device_keys: credentials.key_file_in(data_dir),
                seal_keys: seal.key_file_in(data_dir),
                data_dir: data_dir.to_owned(),
                secret_files: cli.engines.secret_files(),
                seal: seal.open_if_there(data_dir).map_err(Into::into),
            };
            doctor::run(*args, installation, out).await
        }
    }
}

/// Opens the file of the keys that seal. On the embedded store it is made if it is missing; other stores are
/// used by workers on other machines, which need the same file.
fn seal_keys(
    seal: &SealSettings,
    urls: &EngineSettings,
    data_dir: &Path,
) -> anyhow::Result<Arc<SealFile>> {
    if matches!(urls.index, IndexUrl::Sqlite(_)) {
        data_dir::make(data_dir)?;
        return Ok(seal.open_or_create_in(data_dir)?);
    }
    seal.open_if_there(data_dir)?.context(
        "accounts are sealed: name the file of the keys with --seal-key, the same as for the workers; \
         `pushctl key seal FILE` makes one",
    )
}

/// Opens the index.
///
/// # Errors
/// If the index cannot be used.
async fn index(urls: &EngineSettings) -> anyhow::Result<Arc<dyn Index>> {
    Ok(stores(urls).await?.index)
}

/// Opens the index and the ledger, which must be there.
///
/// # Errors
/// If one of the stores cannot be used.
async fn stores(urls: &EngineSettings) -> anyhow::Result<Stores> {
    if let IndexUrl::Sqlite(file) = &urls.index {
        check_there(file, "--index-url")?;
    }
    Ok(open_stores(urls).await?)
}

/// Opens the index; an embedded one is made if it is missing. The second value is then a note about it.
///
/// # Errors
/// If the index can be neither used nor made.
async fn index_or_make(
    urls: &EngineSettings,
    data_dir: &Path,
) -> anyhow::Result<(Arc<dyn Index>, Option<String>)> {
    let IndexUrl::Sqlite(file) = &urls.index else {
        return Ok((open_stores(urls).await?.index, None));
    };
    let is_new = !file.exists();
    data_dir::make(data_dir)?;
    let index = open_stores(urls).await?.index;
    if !is_new {
        return Ok((index, None));
    }
    let folder = file.parent().unwrap_or(data_dir);
    let folder = path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let service = match default_server_answers().await {
        true => format!("the service at {DEFAULT_SERVER} has another one"),
        false => format!("no service answers at {DEFAULT_SERVER}"),
    };
    let folder = folder.display();
    let note = format!(
        "made a new store in {folder}; {service}: start one with `pushctl standalone --data-dir {folder}`, or \
         name the store of another one with --data-dir"
    );
    Ok((index, Some(note)))
}

/// Returns true if something listens at the default address of a service on this machine.
async fn default_server_answers() -> bool {
    let address = DEFAULT_SERVER.trim_start_matches("http://");
    let connect = tokio::net::TcpStream::connect(address);
    matches!(tokio::time::timeout(LOOK, connect).await, Ok(Ok(_)))
}

/// Refuses an embedded store of a data directory that has none yet: a command that looks for something
/// makes none. `flag` names another one.
fn check_there(file: &Path, flag: &str) -> anyhow::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let is_there = file.exists() || STORES.iter().any(|name| folder.join(name).exists());
    ensure!(
        is_there,
        "there is no store in {}: `pushctl standalone` and `pushctl app create` make one, --data-dir and \
         {flag} name another one",
        path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).display()
    );
    Ok(())
}

/// Opens the index for the audit trail of a command that does not need it otherwise. Without an
/// index the command still runs, and says that it is not recorded.
async fn index_for_audit(urls: &EngineSettings, out: Output) -> Option<Arc<dyn Index>> {
    let queue_is_embedded = matches!(urls.queue, QueueUrl::Sqlite(_));
    if queue_is_embedded != matches!(urls.index, IndexUrl::Sqlite(_)) {
        out.note("not recorded in the audit trail: --index-url and --queue-url belong together");
        return None;
    }
    reached(index(urls).await, out)
}

/// Opens the index for the audit trail of a change of the device keys. It creates no embedded index
/// just for that, unless the keys are in the data directory as well.
async fn index_for_key_audit(
    urls: &EngineSettings,
    credentials: &CredentialSettings,
    data_dir: &Path,
    out: Output,
) -> Option<Arc<dyn Index>> {
    if let IndexUrl::Sqlite(file) = &urls.index
        && credentials.key_file.is_some()
        && !file.exists()
    {
        out.note("not recorded in the audit trail: there is no index, name one with --index-url");
        return None;
    }
    reached(index_or_make(urls, data_dir).await.map(|(index, _)| index), out)
}

fn reached(index: anyhow::Result<Arc<dyn Index>>, out: Output) -> Option<Arc<dyn Index>> {
    index.map_err(|error| out.note(format_args!("not recorded in the audit trail: {error:#}"))).ok()
}

async fn queue(urls: &EngineSettings) -> anyhow::Result<Arc<dyn Queue>> {
    if let QueueUrl::Sqlite(file) = &urls.queue {
        check_there(file, "--queue-url")?;
    }
    open_queue(urls, PROGRAM).await.map_err(|error| {
        let commands = rabbitmq_commands(&error, &urls.queue);
        let error = anyhow::Error::new(error);
        let place = format!("cannot use the queue at {}", urls.queue);
        match commands {
            Some(commands) => anyhow!("{place}: {error:#}\n{commands}"),
            None => error.context(place),
        }
    })
}
