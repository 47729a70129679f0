//! `pushctl device`: registers, imports, exports, lists, shows and removes the devices of an app, lists those that
//! are gone, prints their MQTT logins and listens as one.
//!
//! - `list`: prints a page of devices
//! - `gone`: prints devices that were removed as gone
//! - `listen`: the command that listens
//! - `profile_args`: the flags about attributes, topics and users
//! - `user`: the devices of a user
//! - `remote`: single devices, through the HTTP endpoint of a server

mod gone;
mod list;
pub mod listen;
mod profile_args;
pub(crate) mod remote;
pub(crate) mod user;

use std::{
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::bail;
use clap::Subcommand;
use push_boot::{
    settings::{duration, size_between},
    terminal,
};
use push_credentials::MqttLogin;
use push_index::Index;
use push_model::{
    device::{DeviceDraft, ProfileDraft},
    ids::{AppId, ClientId, Topic, UserId},
};
use push_operator::device::{
    self, AppLogins,
    import::{self, Imported, MAX_MEMORY, MIN_MEMORY},
};

use self::profile_args::{Assignment, PatchArgs};
use crate::{
    input::{self, print_noted},
    output::{Output, stdout},
    server::ServerArgs,
};

/// The time between two drawings of the progress bar.
const TICK: Duration = Duration::from_millis(100);

/// Commands on devices.
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// Register or replace many devices: NDJSON, one device a line with its client_id
    Import {
        /// The app
        app_id: AppId,
        /// The file, or - for standard input
        file: PathBuf,
        /// Memory for the devices that are sorted together: a large app is imported faster with
        /// more
        #[arg(
            long,
            env = "PUSH_IMPORT_MEMORY",
            value_name = "SIZE",
            default_value = "384MiB",
            value_parser = import_memory
        )]
        import_memory: usize,
    },
    /// Print all devices as NDJSON, as `import` reads it
    Export {
        /// The app
        app_id: AppId,
    },
    /// List devices, some at a time, in the order in which the index has them
    List {
        /// The app
        app_id: AppId,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50,
            value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        /// Go on behind the page that ended with this cursor
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Register or replace one device. Its attributes of the app's own, its topics and its user stay unless they
    /// are given
    Put(Box<PutArgs>),
    /// Change attributes of the app's own, topics and the user of a device
    Patch(Box<PatchArgs>),
    /// Show one device
    Show(OneArgs),
    /// Remove one device
    Remove(OneArgs),
    /// List devices that were removed because their provider reported them as gone, the newest first. The
    /// last 10,000 of an app are kept, for 7 days
    Gone {
        /// The app
        app_id: AppId,
        /// Only those that were removed within this time
        #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
        since: Duration,
    },
    /// Print the login of a device at the MQTT broker
    Credentials {
        /// The app
        app_id: AppId,
        /// The device, which must be registered
        client_id: ClientId,
    },
    /// Connect over MQTT as this device and print what it receives. The broker is
    /// mqtt://127.0.0.1:1883 if none is named
    Listen(listen::ListenArgs),
}

/// A device, and the server to ask.
#[derive(Debug, clap::Args)]
pub struct OneArgs {
    /// The app
    app_id: AppId,
    /// The device
    client_id: ClientId,
    #[command(flatten)]
    server: ServerArgs,
}

/// A device given by flags.
#[derive(Debug, clap::Args)]
pub struct PutArgs {
    /// The country: ISO 3166-1 alpha-2
    #[arg(long)]
    country: Option<String>,
    /// A language tag, like zh-CN
    #[arg(long)]
    language: Option<String>,
    /// The maker of the device
    #[arg(long)]
    brand: Option<String>,
    /// The model
    #[arg(long)]
    model: Option<String>,
    /// An Android API level
    #[arg(long)]
    os_version: Option<String>,
    /// The version of the app on it
    #[arg(long)]
    app_version: Option<String>,
    /// mqtt, fcm, apns, webpush, webhook or discard
    #[arg(long)]
    transport: Option<String>,
    /// The device's address at the transport's provider
    #[arg(long)]
    token: Option<String>,
    /// A value of an attribute of the app's own: 7 and true are no strings, "7" is one. Those that are not given
    /// are taken away
    #[arg(long, value_name = "NAME=VALUE", num_args = 1.., value_parser = profile_args::assignment)]
    attribute: Vec<Assignment>,
    /// The topics, in place of those that it has
    #[arg(long, value_name = "TOPIC", num_args = 1.., value_delimiter = ',')]
    topic: Vec<Topic>,
    /// The user
    #[arg(long, value_name = "USER_ID")]
    user: Option<UserId>,
    // Behind the others, because its heading holds for what follows.
    #[command(flatten)]
    one: OneArgs,
}

impl DeviceCommand {
    /// Returns the flags about the server, and the app, of a command that a server can do too.
    pub(crate) fn server(&self) -> Option<(&ServerArgs, &AppId)> {
        match self {
            Self::Show(one) | Self::Remove(one) => Some((&one.server, &one.app_id)),
            Self::Put(args) => Some((&args.one.server, &args.one.app_id)),
            Self::Patch(args) => Some((&args.one.server, &args.one.app_id)),
            _ => None,
        }
    }
}

/// Parses the memory of an import, in bytes.
fn import_memory(text: &str) -> Result<usize, String> {
    size_between(MIN_MEMORY, MAX_MEMORY)(text)
}

/// Runs a command that works on the index: all but `credentials` and `listen`.
///
/// # Errors
/// If the command fails, completely or in part.
pub async fn run(
    command: DeviceCommand,
    index: &Arc<dyn Index>,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        DeviceCommand::Import { app_id, file, import_memory } => {
            import_file(&app_id, &file, import_memory, index, out).await
        }
        DeviceCommand::Export { app_id } => export(&app_id, &**index, out).await,
        DeviceCommand::List { app_id, limit, cursor } => {
            let limit = usize::try_from(limit)?;
            let page = device::list(&**index, &app_id, limit, cursor.as_deref()).await?;
            list::print(&page, out)
        }
        DeviceCommand::Put(args) => {
            let OneArgs { app_id, client_id, .. } = &args.one;
            let body = serde_json::to_string(&args.fields())?;
            let draft: DeviceDraft<'_> = serde_json::from_str(&body)?;
            let stored = device::put(&**index, app_id, client_id.clone(), draft).await?;
            for warning in &stored.warnings {
                out.note(format_args!("warning: {warning}"));
            }
            let done = if stored.is_new { "registered" } else { "replaced" };
            out.result(format!("{client_id} {done}"), &stored)
        }
        DeviceCommand::Patch(args) => {
            let OneArgs { app_id, client_id, .. } = &args.one;
            let body = serde_json::to_string(&args.fields())?;
            let draft: ProfileDraft<'_> = serde_json::from_str(&body)?;
            let stored = device::patch(&**index, app_id, client_id.clone(), &draft).await?;
            for warning in &stored.warnings {
                out.note(format_args!("warning: {warning}"));
            }
            out.result(format!("{client_id} changed"), &stored)
        }
        DeviceCommand::Show(OneArgs { app_id, client_id, .. }) => {
            print(&device::show(&**index, &app_id, &client_id).await?, out)
        }
        DeviceCommand::Remove(OneArgs { app_id, client_id, .. }) => {
            let done = device::remove(&**index, &app_id, client_id).await?;
            out.result(format!("removed {}", done.removed), &done)
        }
        DeviceCommand::Gone { app_id, since } => {
            gone::print(&device::gone(&**index, &app_id, since).await?, out)
        }
        // They need more than the index, or less.
        DeviceCommand::Credentials { .. } | DeviceCommand::Listen(_) => Ok(()),
    }
}

/// Prints a device.
fn print(device: &impl serde::Serialize, out: Output) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(device)?;
    out.result(terminal::json(&text), device)
}

async fn import_file(
    app_id: &AppId,
    file: &Path,
    memory: usize,
    index: &Arc<dyn Index>,
    out: Output,
) -> anyhow::Result<()> {
    let (input, size) = input::open(file)?;
    let bar = out.progress(
        size,
        "{spinner} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta} left  {msg}",
    );
    bar.enable_steady_tick(TICK);
    let progress = |done: import::ImportProgress| {
        bar.set_position(done.input_bytes);
        bar.set_message(format!("{} devices", done.devices));
    };
    let imported = import::import(index, app_id, input, memory, &progress).await?;
    bar.finish_and_clear();
    let Imported {
        created,
        updated,
        without_account,
        bad,
        bad_lines,
        warnings,
        warned_lines,
        seconds,
    } = &imported;
    print_noted(warned_lines, *warnings, "warnings", out);
    print_noted(bad_lines, *bad, "bad lines", out);
    if *without_account > 0 {
        out.note(format_args!(
            "{without_account} devices have a transport for which {app_id} has no account: pushes to them fail \
             until `pushctl app transport set` makes one"
        ));
    }
    let devices = created + updated;
    let rate = devices as f64 / seconds.max(0.001);
    let warned = match warnings {
        0 => String::new(),
        count => format!("{count} warnings, "),
    };
    let text = format!(
        "{devices} devices imported ({created} new, {updated} replaced), {bad} bad lines, {warned}{seconds:.1} \
         s, {rate:.0} devices/s"
    );
    out.result(text, &imported)?;
    if *bad > 0 {
        bail!("{bad} lines were not imported");
    }
    Ok(())
}

/// Prints all devices as NDJSON, in the same form with and without `--json`. Devices that cannot be read
/// are left out, and a note says how many.
async fn export(app_id: &AppId, index: &dyn Index, out: Output) -> anyhow::Result<()> {
    let total = device::count(index, app_id).await?;
    let bar = out.progress(Some(total), "{pos}/{len} devices {wide_bar} {eta} left");
    let mut lines = BufWriter::new(stdout());
    let unreadable = device::export(index, app_id, |devices| {
        for device in devices {
            writeln!(lines, "{}", terminal::json(&serde_json::to_string(device)?))?;
        }
        bar.inc(devices.len() as u64);
        Ok(())
    });
    let unreadable = unreadable.await?;
    lines.flush()?;
    bar.finish_and_clear();
    if unreadable > 0 {
        out.note(format_args!("{unreadable} devices whose records cannot be read were left out"));
    }
    Ok(())
}

/// Prints the login of a device.
///
/// # Errors
/// If the device is not registered, the index did not answer, or no key signs now.
pub(crate) async fn print_login(
    logins: &AppLogins,
    client: &ClientId,
    out: Output,
) -> anyhow::Result<()> {
    let login = logins.issue(client).await?;
    let MqttLogin { url, websocket_url, topic, client_id, username, password, expires_at } = &login;
    let urls = [("url       ", url), ("websocket ", websocket_url)];
    let urls: String = urls
        .into_iter()
        .filter_map(|(name, url)| Some(format!("{name} {}\n", url.as_ref()?)))
        .collect();
    let text = format!(
        "{urls}topic      {topic}\nclient id  {client_id}\nusername   {username}\n\
         password   {password}\nexpires    {expires_at}"
    );
    out.result(text, &login)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_memory_is_a_size_between_what_helps_and_what_can_be_counted() {
        assert_eq!(import_memory("1MiB"), Ok(MIN_MEMORY));
        assert_eq!(import_memory("2GiB"), Ok(MAX_MEMORY));
        for wrong in ["1023KiB", "3GiB", "100000000"] {
            assert!(import_memory(wrong).is_err(), "{wrong}");
        }
    }
}
