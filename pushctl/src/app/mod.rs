//! `pushctl app`: makes, changes and removes apps and their secrets. The HTTP API cannot do this.
//!
//! - `changes`: limits and quotas on the command line
//! - `keeper`: keeps a new secret in a profile
//! - `secret`: the named secrets of an app
//! - `secret_file`: secrets that come from a file
//! - `table`: tables of apps and secrets
//! - `transport`: accounts at providers

pub(crate) mod attribute;
mod changes;
mod keeper;
mod secret;
mod secret_file;
mod table;
mod transport;

use std::{num::NonZeroU32, path::PathBuf, sync::Arc};

use clap::Subcommand;
use push_boot::settings::duration;
use push_credentials::SealFile;
use push_index::Index;
use push_model::{app::AppQuota, ids::AppId};
use push_operator::{
    app::{self, AppState, Limits},
    audit::Actor,
};

use self::{
    changes::{Changes, quota},
    keeper::Keeper,
    secret_file::read_or_generate,
    table::{apps, print_app},
};
pub use self::{
    secret::SecretCommand,
    secret_file::read_secret,
    transport::{AccountCommand, TransportCommand},
};
use crate::{
    confirm::{Confirmation, count},
    output::Output,
    server::PlaceArgs,
    transfer::{self, RestoreArgs},
};

/// Commands on apps.
#[derive(Debug, Subcommand)]
pub enum AppCommand {
    /// Make an app and print its secret, once
    Create {
        /// 1–64 of A-Z a-z 0-9 _ . -, but not . or ..
        app_id: AppId,
        /// Take the secret from this file instead of making one
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// Keep the secret and the server in a profile for later commands, in place of printing the secret
        #[arg(long)]
        save: bool,
        /// The most pushes per second; no limit if not given
        #[arg(long, value_name = "N")]
        rate_limit: Option<NonZeroU32>,
        /// The most devices per second that all workers together send to; no limit if not given
        #[arg(long, value_name = "N")]
        pace: Option<NonZeroU32>,
        /// The most devices it may have, or `none`; if not given, --app-max-devices of ingest
        #[arg(long, value_name = "N", value_parser = quota)]
        max_devices: Option<AppQuota>,
        /// The most messages that may wait, or `none`; if not given, --app-max-waiting of ingest
        #[arg(long, value_name = "N", value_parser = quota)]
        max_waiting: Option<AppQuota>,
        /// The most ledger entries, or `none`; if not given, --app-max-ledger-entries of ingest
        #[arg(long, value_name = "N", value_parser = quota)]
        max_ledger_entries: Option<AppQuota>,
        // Behind the others, because its heading holds for what follows.
        /// The server and the profile
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Change limits and quotas of the app (takes effect within 5 s, also on what is being sent)
    #[command(override_usage = "pushctl app set [OPTIONS] <APP_ID>")]
    Set {
        /// The app
        app_id: AppId,
        /// The new values
        #[command(flatten)]
        changes: Changes,
    },
    /// List all apps
    List,
    /// Show one app
    Show {
        /// The app
        app_id: AppId,
    },
    /// Refuse the app's pushes from now on (takes effect within 5 s where ingest reaches the index)
    Disable {
        /// The app
        app_id: AppId,
    },
    /// Take the app's pushes again
    Enable {
        /// The app
        app_id: AppId,
        /// Take them even if it moves or has moved to another store. In service in both, each would have a
        /// part of its devices: remove it there first, which also ends a move that still runs
        #[arg(long)]
        although_moved: bool,
    },
    /// Remove the app and all its devices
    Remove {
        /// The app
        app_id: AppId,
        /// The answer to the question
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Write the app and its devices to a file, with its secrets as hashes only
    Backup {
        /// The app
        app_id: AppId,
        /// A new file, which only its owner will be able to read
        file: PathBuf,
        /// Leave out devices whose records cannot be read
        #[arg(long)]
        skip_unreadable: bool,
    },
    /// Make an app and its devices from a backup
    Restore(RestoreArgs),
    /// Add, list and revoke secrets for a part of the API each
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Set, list, test and remove the accounts at FCM, APNs, Web Push and webhooks
    #[command(subcommand)]
    Transport(TransportCommand),
    /// Replace the default secret and print the new one, once
    RotateSecret {
        /// The app
        app_id: AppId,
        /// Take the new secret from this file instead of making one
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// Keep the old secret valid for this long
        #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
        overlap: std::time::Duration,
        /// Keep the new secret and the server in a profile, in place of printing the secret
        #[arg(long)]
        save: bool,
        /// The server and the profile
        #[command(flatten)]
        place: PlaceArgs,
    },
}

impl AppCommand {
    /// Returns true if the command makes an app, and so an embedded store for the first one.
    pub(crate) fn makes_store(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Restore(_))
    }
}

/// Runs the command.
///
/// # Errors
/// If there is no such app (for `create`: if there is one), the index did not answer, or a change
/// could not be recorded.
pub async fn run(
    command: AppCommand,
    index: &dyn Index,
    seal: impl FnOnce() -> anyhow::Result<Arc<SealFile>>,
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        AppCommand::Create {
            app_id,
            secret_file,
            save,
            place,
            rate_limit,
            pace,
            max_devices,
            max_waiting,
            max_ledger_entries,
        } => {
            let limits = Limits {
                rate_limit,
                pace,
                max_devices: max_devices.unwrap_or_default(),
                max_waiting: max_waiting.unwrap_or_default(),
                max_ledger_entries: max_ledger_entries.unwrap_or_default(),
            };
            let secret = read_or_generate(secret_file)?;
            let keeper = Keeper::check(save.then_some(place), &app_id)?;
            let new = app::create(index, actor, app_id, secret, limits).await?;
            keeper.print(&new, out)
        }
        AppCommand::List => {
            let all = app::list(index).await?;
            let text = if all.is_empty() {
                "no apps".to_owned()
            } else {
                apps(all.iter().map(|app| &app.app)).to_string()
            };
            out.result(text, &all)
        }
        AppCommand::Show { app_id } => print_app(&app::show(index, &app_id).await?, out),
        AppCommand::Set { app_id, changes } => {
            print_app(&app::set(index, actor, &app_id, changes.into()).await?, out)
        }
        AppCommand::Disable { app_id } => {
            print_state(&app::disable(index, actor, &app_id).await?, out)
        }
        AppCommand::Enable { app_id, although_moved } => {
            print_state(&app::enable(index, actor, &app_id, although_moved).await?, out)
        }
        AppCommand::Remove { app_id, confirmation } => {
            let loss = async || {
                let devices = count(app::devices_to_lose(index, &app_id).await?, "device");
                Ok(format!("removes app {app_id} with its {devices} and its secrets"))
            };
            confirmation.ask(loss, out).await?;
            let removed = app::remove(index, actor, &app_id).await?;
            out.result(format!("removed {app_id}"), &removed)
        }
        AppCommand::Backup { app_id, file, skip_unreadable } => {
            transfer::backup(index, actor, &app_id, &file, skip_unreadable, out).await
        }
        AppCommand::Restore(args) => transfer::restore(index, actor, &args, out).await,
        AppCommand::Transport(command) => transport::run(command, index, seal, actor, out).await,
        AppCommand::Secret(command) => secret::run(command, index, actor, out).await,
        AppCommand::RotateSecret { app_id, secret_file, overlap, save, place } => {
            let secret = read_or_generate(secret_file)?;
            let keeper = Keeper::check(save.then_some(place), &app_id)?;
            let new = app::rotate_secret(index, actor, &app_id, secret, overlap).await?;
            keeper.print(&new, out)
        }
    }
}

fn print_state(state: &AppState, out: Output) -> anyhow::Result<()> {
    let id = &state.app_id;
    if let Some(moved) = &state.had_moved_to {
        out.note(format_args!(
            "{id} had moved to {}: what it was given there since {} is not here",
            moved.store, moved.at
        ));
    }
    let text = if state.disabled { "disabled" } else { "enabled" };
    out.result(format!("{id} is {text}"), state)
}
