//! `pushctl app`: makes, changes and removes apps and their secrets. The HTTP API cannot do this.
//!
//! - `secret`: the named secrets of an app
//! - `secret_file`: secrets that come from a file
//! - `usage`: what an app uses of its quotas

mod secret;
mod secret_file;
mod usage;

use std::{num::NonZeroU32, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use push_index::Index;
use push_model::{
    app::{App, AppQuota, DEFAULT_SECRET},
    audit::{Action, AuditEvent},
    ids::AppId,
    secret::Secret,
    time::UnixMillis,
};
use push_service::settings::{count_or_none, duration};
use serde_json::json;

use self::secret_file::read_or_generate;
pub use self::{secret::SecretCommand, secret_file::read_secret};
use crate::{
    audit,
    output::{Output, Table},
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
    /// Refuse the app's pushes from now on (takes effect within 5 s)
    Disable {
        /// The app
        app_id: AppId,
    },
    /// Take the app's pushes again
    Enable {
        /// The app
        app_id: AppId,
    },
    /// Remove the app and all its devices
    Remove {
        /// The app
        app_id: AppId,
    },
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

/// What `app set` changes.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct Changes {
    /// The most pushes per second, or `none`
    #[arg(long, value_name = "N", value_parser = limit)]
    rate_limit: Option<Limit>,
    /// The most devices per second that all workers together send to, or `none`
    #[arg(long, value_name = "N", value_parser = limit)]
    pace: Option<Limit>,
    /// The most devices the app may have, `none`, or `default` for --app-max-devices of ingest
    #[arg(long, value_name = "N", value_parser = quota)]
    max_devices: Option<AppQuota>,
    /// The most messages of the app that may wait, `none`, or `default` for --app-max-waiting of ingest
    #[arg(long, value_name = "N", value_parser = quota)]
    max_waiting: Option<AppQuota>,
    /// The most ledger entries that the app's messages may have, `none`, or `default` for
    /// --app-max-ledger-entries of ingest
    #[arg(long, value_name = "N", value_parser = quota)]
    max_ledger_entries: Option<AppQuota>,
}

impl Changes {
    fn apply(&self, app: &mut App) {
        if let Some(Limit(rate_limit)) = self.rate_limit {
            app.rate_limit = rate_limit;
        }
        if let Some(Limit(pace)) = self.pace {
            app.pace = pace;
        }
        if let Some(max_devices) = self.max_devices {
            app.max_devices = max_devices;
        }
        if let Some(max_waiting) = self.max_waiting {
            app.max_waiting = max_waiting;
        }
        if let Some(max_ledger_entries) = self.max_ledger_entries {
            app.max_ledger_entries = max_ledger_entries;
        }
    }
}

/// How often a change is tried again after another program has changed the same app.
const CHANGE_TRIES: usize = 5;

/// A new limit, or `none`, which removes it.
#[derive(Debug, Clone, Copy)]
struct Limit(Option<NonZeroU32>);

fn limit(text: &str) -> Result<Limit, String> {
    count_or_none(text).map(Limit)
}

fn quota(text: &str) -> Result<AppQuota, String> {
    match text {
        "default" => Ok(AppQuota::Default),
        _ => match limit(text).map_err(|wrong| format!("{wrong}, or default"))? {
            Limit(Some(devices)) => Ok(AppQuota::AtMost(devices)),
            Limit(None) => Ok(AppQuota::None),
        },
    }
}

/// What the audit trail says of a command; none for one that changes nothing.
fn audit_event(command: &AppCommand) -> Option<AuditEvent> {
    let (action, app, secret) = match command {
        AppCommand::Create { app_id, .. } => (Action::AppCreated, app_id, None),
        AppCommand::Set { app_id, .. } => (Action::AppChanged, app_id, None),
        AppCommand::Disable { app_id } => (Action::AppDisabled, app_id, None),
        AppCommand::Enable { app_id } => (Action::AppEnabled, app_id, None),
        AppCommand::Remove { app_id } => (Action::AppRemoved, app_id, None),
        AppCommand::RotateSecret { app_id, .. } => {
            (Action::SecretRotated, app_id, Some(DEFAULT_SECRET))
        }
        AppCommand::Secret(SecretCommand::Add { app_id, name, .. }) => {
            (Action::SecretAdded, app_id, Some(name.as_str()))
        }
        AppCommand::Secret(SecretCommand::Revoke { app_id, name }) => {
            (Action::SecretRevoked, app_id, Some(name.as_str()))
        }
        AppCommand::List
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
        AppCommand::Disable { app_id } => set_disabled(index, &app_id, true, out).await,
        AppCommand::Enable { app_id } => set_disabled(index, &app_id, false, out).await,
        AppCommand::Remove { app_id } => {
            if !index.remove_app(&app_id).await? {
                bail!("there is no app {app_id}");
            }
            out.result(format!("removed {app_id}"), &json!({ "removed": app_id }))
        }
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
    index.app(app_id).await?.with_context(|| format!("there is no app {app_id}"))
}

/// Changes the record of an app. If it was changed by another program since it was read, it is read
/// again.
async fn change_app(
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

async fn show(index: &dyn Index, app: &App, out: Output) -> anyhow::Result<()> {
    let devices = index.count_devices(&app.into()).await?;
    let mut table = Table::new(&COLUMNS);
    table.row(cells(app, devices));
    let uses = index.secret_uses(&app.into()).await?;
    let (secrets, json) = secret::listed(app, &uses);
    let mut described = describe(app, devices);
    described["secrets"] = json;
    let usage = usage::of(index, app).await?;
    described["usage"] = usage.json();
    out.result(format!("{table}\n{}\n{secrets}", usage.table(app, devices)), &described)
}

async fn set_disabled(
    index: &dyn Index,
    app_id: &AppId,
    disabled: bool,
    out: Output,
) -> anyhow::Result<()> {
    let change = |app: &mut App| {
        app.disabled = disabled;
        Ok(())
    };
    let app = change_app(index, app_id, change).await?;
    out.result(
        format!("{app_id} is {}", state(&app)),
        &json!({ "app_id": app_id, "disabled": disabled }),
    )
}

/// Prints a new secret. The default one is printed without its name, as it is the only one of most
/// apps.
fn show_secret(app: &App, name: &str, secret: &Secret, out: Output) -> anyhow::Result<()> {
    let (mut named, mut json) = (String::new(), json!({ "app_id": app.app_id }));
    if name != DEFAULT_SECRET {
        named = format!("name    {name}\n");
        json["name"] = name.into();
    }
    json["secret"] = secret.expose().into();
    let text = format!(
        "app     {}\n{named}secret  {}\n\nThe secret is not shown again: keep it now.",
        app.app_id,
        secret.expose()
    );
    out.result(text, &json)
}

fn state(app: &App) -> &'static str {
    if app.disabled { "disabled" } else { "enabled" }
}

const COLUMNS: [&str; 7] =
    ["APP", "STATE", "RATE LIMIT", "PACE", "DEVICES", "MAX DEVICES", "CREATED"];

fn cells(app: &App, devices: u64) -> [String; 7] {
    let a_second =
        |limit: Option<NonZeroU32>| limit.map_or_else(|| "none".to_owned(), |n| format!("{n}/s"));
    [
        app.app_id.to_string(),
        state(app).to_owned(),
        a_second(app.rate_limit),
        a_second(app.pace),
        devices.to_string(),
        usage::quota(app.max_devices),
        app.created_at.to_string(),
    ]
}

fn describe(app: &App, devices: u64) -> serde_json::Value {
    json!({
        "app_id": app.app_id,
        "disabled": app.disabled,
        "rate_limit": app.rate_limit,
        "pace": app.pace,
        "devices": devices,
        "max_devices": app.max_devices,
        "max_waiting": app.max_waiting,
        "max_ledger_entries": app.max_ledger_entries,
        "created_at": app.created_at,
        "previous_secret_valid_until": app.previous.as_ref().map(|p| p.valid_until),
    })
}
