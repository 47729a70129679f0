//! `pushctl app`: makes, changes and removes apps and their secrets. The HTTP API cannot do this.
//!
//! - `changes`: what `app set` changes
//! - `secret`: the named secrets of an app
//! - `secret_file`: secrets that come from a file
//! - `table`: how apps are shown
//! - `usage`: what an app uses of its quotas

mod changes;
mod secret;
mod secret_file;
mod table;
mod usage;

use std::{num::NonZeroU32, path::PathBuf};

use anyhow::bail;
use clap::Subcommand;
use push_boot::settings::duration;
use push_index::Index;
use push_model::{
    app::{App, AppQuota, DEFAULT_SECRET},
    audit::{Action, AuditEvent},
    ids::AppId,
    secret::Secret,
    time::UnixMillis,
};
use serde_json::json;

use self::{
    changes::{Changes, quota},
    secret_file::read_or_generate,
    table::{COLUMNS, cells, describe, show, show_secret, state},
};
pub use self::{secret::SecretCommand, secret_file::read_secret};
use crate::{
    audit,
    output::{Output, Table},
    transfer::backup::{self, RestoreArgs},
};

/// What to do with apps.
#[derive(Debug, Subcommand)]
pub enum AppCommand {
    /// Make an app and print its secret, once
    Create {
        /// 1–64 of A-Z a-z 0-9 _ . -
        app_id: AppId,
        /// Take the secret from this file instead of making one
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
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
    },
    /// Change how often the app may push and how fast its devices are sent to (takes effect within
    /// 5 s, also for what is being sent)
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
    /// Take the app's pushes again, also if its move to another store has not ended
    Enable {
        /// The app
        app_id: AppId,
        /// Also if it moves or has moved to another store. In service in both, each would have a part of
        /// its devices: remove it there first, which also ends a move that still runs
        #[arg(long)]
        although_moved: bool,
    },
    /// Remove the app and all its devices
    Remove {
        /// The app
        app_id: AppId,
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
    /// Secrets for a part of the API each
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Replace the default secret and print the new one, once
    RotateSecret {
        /// The app
        app_id: AppId,
        /// Take the new secret from this file instead of making one
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// How long the old secret stays valid
        #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
        overlap: std::time::Duration,
    },
}

/// How often a change is tried again after another program has changed the same app.
const CHANGE_TRIES: usize = 5;

/// What the audit trail says of a command; none for one that changes nothing.
fn audit_event(command: &AppCommand) -> Option<AuditEvent> {
    let (action, app, secret) = match command {
        AppCommand::Create { app_id, .. } => (Action::AppCreated, app_id, None),
        AppCommand::Set { app_id, .. } => (Action::AppChanged, app_id, None),
        AppCommand::Disable { app_id } => (Action::AppDisabled, app_id, None),
        AppCommand::Enable { app_id, .. } => (Action::AppEnabled, app_id, None),
        AppCommand::Remove { app_id } => (Action::AppRemoved, app_id, None),
        AppCommand::Backup { app_id, .. } => (Action::AppBackedUp, app_id, None),
        AppCommand::RotateSecret { app_id, .. } => {
            (Action::SecretRotated, app_id, Some(DEFAULT_SECRET))
        }
        AppCommand::Secret(SecretCommand::Add { app_id, name, .. }) => {
            (Action::SecretAdded, app_id, Some(name.as_str()))
        }
        AppCommand::Secret(SecretCommand::Revoke { app_id, name }) => {
            (Action::SecretRevoked, app_id, Some(name.as_str()))
        }
        // A restoration is recorded where the file is read, which names the app.
        AppCommand::List
        | AppCommand::Restore(_)
        | AppCommand::Show { .. }
        | AppCommand::Secret(SecretCommand::List { .. }) => return None,
    };
    let (app, secret) = (Some(app.clone()), secret.map(str::to_owned));
    Some(AuditEvent { app, secret, ..audit::event(action) })
}

/// Runs the command, and records what it changes.
///
/// # Errors
/// As the command, and if it could not be recorded.
pub async fn run(command: AppCommand, index: &dyn Index, out: Output) -> anyhow::Result<()> {
    match audit_event(&command) {
        Some(event) => audit::recorded(Some(index), event, execute(command, index, out)).await,
        None => execute(command, index, out).await,
    }
}

/// Runs the command.
///
/// # Errors
/// If there is no such app (or one already, for `create`), or the index did not answer.
async fn execute(command: AppCommand, index: &dyn Index, out: Output) -> anyhow::Result<()> {
    match command {
        AppCommand::Create {
            app_id,
            secret_file,
            rate_limit,
            pace,
            max_devices,
            max_waiting,
            max_ledger_entries,
        } => {
            let secret = read_or_generate(secret_file)?;
            let mut app = App::new(app_id, &secret, UnixMillis::now());
            app.rate_limit = rate_limit;
            app.pace = pace;
            app.max_devices = max_devices.unwrap_or_default();
            app.max_waiting = max_waiting.unwrap_or_default();
            app.max_ledger_entries = max_ledger_entries.unwrap_or_default();
            if !index.create_app(&app).await? {
                check_not_arriving(index, &app.app_id).await?;
                bail!("there is an app {} already", app.app_id);
            }
            show_secret(&app, DEFAULT_SECRET, &secret, out)
        }
        AppCommand::List => {
            let apps = index.apps().await?;
            let mut table = Table::new(&COLUMNS);
            let mut rows = Vec::new();
            for app in &apps {
                let devices = index.count_devices(&app.into()).await?;
                table.row(cells(app, devices));
                rows.push(describe(app, devices));
            }
            out.result(
                if apps.is_empty() { "no apps".to_owned() } else { table.to_string() },
                &rows,
            )
        }
        AppCommand::Show { app_id } => show(index, &find(index, &app_id).await?, out).await,
        AppCommand::Set { app_id, changes } => {
            let change = |app: &mut App| {
                changes.apply(app);
                Ok(())
            };
            let app = change_app(index, &app_id, change).await?;
            show(index, &app, out).await
        }
        AppCommand::Disable { app_id } => disable(index, &app_id, out).await,
        AppCommand::Enable { app_id, although_moved } => {
            enable(index, &app_id, although_moved, out).await
        }
        AppCommand::Remove { app_id } => {
            give_up_arrival(index, &app_id).await?;
            if !index.remove_app(&app_id).await? {
                bail!("there is no app {app_id}");
            }
            out.result(format!("removed {app_id}"), &json!({ "removed": app_id }))
        }
        AppCommand::Backup { app_id, file, skip_unreadable } => {
            let app = find(index, &app_id).await?;
            backup::backup(&app, &file, skip_unreadable, index, out).await
        }
        AppCommand::Restore(args) => backup::restore(&args, index, out).await,
        AppCommand::Secret(command) => secret::run(command, index, out).await,
        AppCommand::RotateSecret { app_id, secret_file, overlap } => {
            let secret = read_or_generate(secret_file)?;
            let change = |app: &mut App| {
                let now = UnixMillis::now();
                Ok(app.rotate(&secret, now, now.plus(overlap))?)
            };
            let app = change_app(index, &app_id, change).await?;
            show_secret(&app, DEFAULT_SECRET, &secret, out)
        }
    }
}

async fn find(index: &dyn Index, app_id: &AppId) -> anyhow::Result<App> {
    if let Some(app) = index.app(app_id).await? {
        return Ok(app);
    }
    check_not_arriving(index, app_id).await?;
    bail!("there is no app {app_id}")
}

/// Refuses an app that is on its way here.
async fn check_not_arriving(index: &dyn Index, app_id: &AppId) -> anyhow::Result<()> {
    if let Some(arrival) = index.arrival(app_id).await? {
        bail!(
            "{app_id} is on its way here from {} since {}: run the command that takes it again until it \
             succeeds, or give it up with pushctl app remove {app_id}",
            arrival.origin,
            arrival.begun_at
        );
    }
    Ok(())
}

/// Makes an app of one that is on its way here, disabled and with a secret that nothing knows, so that
/// it can be removed.
async fn give_up_arrival(index: &dyn Index, app_id: &AppId) -> anyhow::Result<()> {
    let Some(arrival) = index.arrival(app_id).await? else { return Ok(()) };
    let mut app = App::new(app_id.clone(), &Secret::generate(), arrival.created_at);
    (app.generation, app.disabled) = (arrival.generation, true);
    index.finish_arrival(&app, &arrival.attempt).await?;
    Ok(())
}

/// Changes the record of an app that is in service here. If it was changed by another program since it
/// was read, it is read again.
async fn change_app(
    index: &dyn Index,
    app_id: &AppId,
    mut change: impl FnMut(&mut App) -> anyhow::Result<()>,
) -> anyhow::Result<App> {
    let in_service = |app: &mut App| {
        check_in_service(app)?;
        change(app)
    };
    change_any_app(index, app_id, in_service).await
}

/// Refuses an app that went to another store.
///
/// # Errors
/// Where it went.
pub fn check_in_service(app: &App) -> anyhow::Result<()> {
    if let Some(moved) = &app.moved_to {
        bail!("{} has moved from here to {}: change it there", app.app_id, moved.store);
    }
    Ok(())
}

/// As [`change_app`], also for an app that went to another store.
async fn change_any_app(
    index: &dyn Index,
    app_id: &AppId,
    mut change: impl FnMut(&mut App) -> anyhow::Result<()>,
) -> anyhow::Result<App> {
    for _ in 0..CHANGE_TRIES {
        let mut app = find(index, app_id).await?;
        change(&mut app)?;
        if index.update_app(&app).await? {
            return Ok(app);
        }
    }
    bail!("{app_id} is being changed by other programs at this moment: try again")
}

async fn disable(index: &dyn Index, app_id: &AppId, out: Output) -> anyhow::Result<()> {
    let change = |app: &mut App| {
        app.disabled = true;
        Ok(())
    };
    let app = change_app(index, app_id, change).await?;
    show_state(&app, out)
}

async fn enable(
    index: &dyn Index,
    app_id: &AppId,
    although_moved: bool,
    out: Output,
) -> anyhow::Result<()> {
    let mut moved = None;
    let change = |app: &mut App| {
        app.disabled = false;
        moved = app.moved_to.take();
        match &moved {
            Some(moved) if !although_moved => bail!(
                "{app_id} moves or has moved from here to {store}: run that move again, which finishes it, \
                 and bring the app back with pushctl move after that. To give the move up, run pushctl app \
                 remove {app_id} there, and add --although-moved here; also if that store is lost",
                store = moved.store
            ),
            _ => Ok(()),
        }
    };
    let app = change_any_app(index, app_id, change).await?;
    if let Some(moved) = moved {
        out.note(format_args!(
            "{app_id} had moved to {}: what it was given there since {} is not here",
            moved.store, moved.at
        ));
    }
    show_state(&app, out)
}

fn show_state(app: &App, out: Output) -> anyhow::Result<()> {
    let id = &app.app_id;
    out.result(
        format!("{id} is {}", state(app)),
        &json!({ "app_id": id, "disabled": app.disabled }),
    )
}
