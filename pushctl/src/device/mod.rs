//! `pushctl device`: registers, imports, exports, shows and removes the devices of an app, and
//! issues their MQTT logins and listens as one.

pub mod credentials;
pub mod export;
pub mod import;
pub mod listen;
pub mod subscriber;

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use push_boot::terminal;
use push_index::Index;
use push_model::{
    app::{App, AppKey},
    attributes::Attribute,
    device::{CheckedDevice, DeviceDraft},
    ids::{AppId, ClientId},
    text::Text,
    time::UnixMillis,
};
use serde_json::json;

use crate::{app::check_in_service, output::Output};

/// What to do with devices.
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
            value_parser = import::memory
        )]
        import_memory: usize,
    },
    /// Print all devices as NDJSON, as `import` reads it
    Export {
        /// The app
        app_id: AppId,
    },
    /// Register or replace one device
    Put(PutArgs),
    /// Show one device
    Show {
        /// The app
        app_id: AppId,
        /// The device
        client_id: ClientId,
    },
    /// Remove one device
    Remove {
        /// The app
        app_id: AppId,
        /// The device
        client_id: ClientId,
    },
    /// Print what a device logs in to the MQTT broker with
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

/// A device given by flags.
#[derive(Debug, clap::Args)]
pub struct PutArgs {
    app_id: AppId,
    client_id: ClientId,
    /// ISO 3166-1 alpha-2
    #[arg(long)]
    country: Option<String>,
    /// A language tag, like zh-CN
    #[arg(long)]
    language: Option<String>,
    #[arg(long)]
    brand: Option<String>,
    #[arg(long)]
    model: Option<String>,
    /// An Android API level
    #[arg(long)]
    os_version: Option<String>,
    #[arg(long)]
    app_version: Option<String>,
    /// mqtt, fcm, webpush, webhook or discard
    #[arg(long)]
    transport: Option<String>,
    /// The device's address at the transport's provider
    #[arg(long)]
    token: Option<String>,
}

impl PutArgs {
    fn draft(&self) -> DeviceDraft<'_> {
        fn text(option: &Option<String>) -> Option<Text<'_>> {
            option.as_deref().map(Into::into)
        }
        DeviceDraft {
            client_id: None,
            country: text(&self.country),
            language: text(&self.language),
            brand: text(&self.brand),
            model: text(&self.model),
            os_version: text(&self.os_version),
            app_version: text(&self.app_version),
            transport: text(&self.transport),
            token: text(&self.token),
        }
    }
}

/// Runs a command that works on the index: all but `credentials` and `listen`.
///
/// # Errors
/// If the command cannot be carried out, wholly or in part.
pub async fn run(
    command: DeviceCommand,
    index: &Arc<dyn Index>,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        DeviceCommand::Import { app_id, file, import_memory } => {
            let app = require_app_in_service(index, &app_id).await?;
            import::run(&app, &file, import_memory, index, out).await
        }
        DeviceCommand::Export { app_id } => {
            let app = require_app(index, &app_id).await?;
            export::run(&app, &**index, out).await
        }
        DeviceCommand::Put(args) => {
            let app = require_app_in_service(index, &args.app_id).await?;
            let CheckedDevice { mut device, warnings } =
                args.draft().check(args.client_id.clone())?;
            for warning in warnings {
                out.note(format_args!("warning: {warning}"));
            }
            let put =
                index.put_devices(&app, std::slice::from_ref(&device), UnixMillis::now()).await?;
            let put = put.into_iter().next().context("the index gave no answer")??;
            for attribute in put.absent().iter() {
                device.attributes.unset(attribute);
                out.note(format_args!("warning: {}", no_room(attribute)));
            }
            let done = if put.is_new() { "registered" } else { "replaced" };
            out.result(format!("{} {done}", args.client_id), &device)
        }
        DeviceCommand::Show { app_id, client_id } => {
            let app = require_app(index, &app_id).await?;
            let device = index
                .device(&app, &client_id)
                .await?
                .with_context(|| format!("{app_id} has no device {client_id}"))?;
            let text = serde_json::to_string_pretty(&device)?;
            out.result(terminal::json(&text), &device)
        }
        DeviceCommand::Remove { app_id, client_id } => {
            let app = require_app_in_service(index, &app_id).await?;
            if !index.remove_device(&app, &client_id).await? {
                bail!("{app_id} has no device {client_id}");
            }
            out.result(format!("removed {client_id}"), &json!({ "removed": client_id }))
        }
        // They need more than the index, or less.
        DeviceCommand::Credentials { .. } | DeviceCommand::Listen(_) => Ok(()),
    }
}

async fn find_app(index: &Arc<dyn Index>, app_id: &AppId) -> anyhow::Result<App> {
    index.app(app_id).await?.with_context(|| {
        format!("there is no app {app_id}: make it with `pushctl app create {app_id}`")
    })
}

/// The app of this name in its current generation.
async fn require_app(index: &Arc<dyn Index>, app_id: &AppId) -> anyhow::Result<AppKey> {
    Ok(AppKey::from(&find_app(index, app_id).await?))
}

/// The same for a change, which would be lost if the app went to another store.
async fn require_app_in_service(index: &Arc<dyn Index>, app_id: &AppId) -> anyhow::Result<AppKey> {
    let app = find_app(index, app_id).await?;
    check_in_service(&app)?;
    Ok(AppKey::from(&app))
}

/// The warning for a value that the app's dictionaries have no room for.
fn no_room(attribute: Attribute) -> String {
    let name = attribute.name();
    format!(
        "{name} is stored as absent: the devices of this app have too many different values of it"
    )
}
