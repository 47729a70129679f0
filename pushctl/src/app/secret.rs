//! `pushctl app secret`: the named secrets of an app, each for a part of the HTTP API.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::bail;
use clap::Subcommand;
use push_boot::settings::duration;
use push_index::Index;
use push_model::{
    app::{App, Scope, Scopes},
    ids::{AppId, SecretName},
    time::UnixMillis,
};
use serde_json::json;

use super::{change_app, find, secret_file::read_or_generate, table::show_secret};
use crate::output::{Output, Table};

/// What to do with the secrets of an app.
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Add a secret for a part of the API and print it, once
    Add {
        /// The app
        app_id: AppId,
        /// What to call it: 1–64 of A-Z a-z 0-9 _ . -
        name: SecretName,
        /// The calls that it is valid for: one or more of push, devices, read, recall
        #[arg(long, value_name = "SCOPE,…", value_delimiter = ',', required = true)]
        scope: Vec<Scope>,
        /// Take the secret from this file instead of making one
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// When it stops being valid: in how long (90d), or at which time (2030-01-31T00:00:00Z);
        /// never if not given
        #[arg(long, value_name = "WHEN", value_parser = when)]
        expires: Option<UnixMillis>,
    },
    /// List the secrets, with their scopes and until when they are valid
    List {
        /// The app
        app_id: AppId,
    },
    /// Remove a secret (takes effect within 5 s where ingest reaches the index)
    Revoke {
        /// The app
        app_id: AppId,
        /// The secret
        name: SecretName,
    },
}

/// A time in the future, as a duration or as RFC 3339.
fn when(text: &str) -> Result<UnixMillis, String> {
    let now = UnixMillis::now();
    let time = duration(text).map(|duration| now.plus(duration)).or_else(|_| text.parse());
    let form = "must be a duration such as 90d, or a time such as 2030-01-31T00:00:00Z";
    let time = time.map_err(|_| form.to_owned())?;
    if time <= now { Err("must be in the future".to_owned()) } else { Ok(time) }
}

/// Runs the command.
///
/// # Errors
/// If there is no such app or secret, the secret cannot be added, or the index did not answer.
pub(super) async fn run(
    command: SecretCommand,
    index: &dyn Index,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        SecretCommand::Add { app_id, name, scope, secret_file, expires } => {
            let secret = read_or_generate(secret_file)?;
            let scopes: Scopes = scope.into_iter().collect();
            let add = |app: &mut App| {
                Ok(app.add_secret(name.clone(), &secret, scopes, UnixMillis::now(), expires)?)
            };
            let app = change_app(index, &app_id, add).await?;
            show_secret(&app, name.as_str(), &secret, out)
        }
        SecretCommand::List { app_id } => {
            let app = find(index, &app_id).await?;
            let (table, json) = listed(&app, &index.secret_uses(&(&app).into()).await?);
            out.result(table, &json)
        }
        SecretCommand::Revoke { app_id, name } => {
            let revoke = |app: &mut App| {
                if app.revoke_secret(&name) {
                    return Ok(());
                }
                bail!(
                    "{app_id} has no named secret {name} (the default one is replaced with pushctl \
                     app rotate-secret)"
                )
            };
            change_app(index, &app_id, revoke).await?;
            out.result(
                format!("revoked {name} of {app_id}"),
                &json!({ "app_id": app_id, "revoked": name }),
            )
        }
    }
}

/// The secrets of an app, for people and for programs, with what the index knows of their last
/// uses.
pub(super) fn listed(app: &App, uses: &BTreeMap<String, UnixMillis>) -> (Table, serde_json::Value) {
    let now = UnixMillis::now();
    let mut table = Table::new(&["SECRET", "SCOPES", "STATE", "MADE", "EXPIRES", "LAST USED"]);
    let mut rows = Vec::new();
    for secret in app.all_secrets() {
        let valid = secret.is_valid(now);
        // A use before it was made is one of an earlier secret of that name.
        let used_at = uses.get(secret.name).copied();
        let used_at = used_at.filter(|used_at| secret.made_at.is_none_or(|made| made <= *used_at));
        let time = |time: Option<UnixMillis>, none: &str| {
            time.map_or_else(|| none.to_owned(), |time| time.to_string())
        };
        table.row([
            secret.name.to_owned(),
            secret.scopes.to_string(),
            if valid { "valid" } else { "invalid" }.to_owned(),
            time(secret.made_at, "unknown"),
            time(secret.expires_at, "never"),
            time(used_at, "-"),
        ]);
        rows.push(json!({
            "name": secret.name,
            "scopes": secret.scopes,
            "valid": valid,
            "made_at": secret.made_at,
            "expires_at": secret.expires_at,
            "last_used_at": used_at,
        }));
    }
    (table, rows.into())
}
