//! `pushctl app secret`: the named secrets of an app, each for a part of the HTTP API.

use std::path::PathBuf;

use anyhow::bail;
use clap::Subcommand;
use push_index::Index;
use push_model::{
    app::{App, Scope, Scopes},
    ids::{AppId, SecretName},
    time::UnixMillis,
};
use push_service::settings::duration;
use serde_json::json;

use super::{find, secret_file::read_or_generate, show_secret, store};
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
        /// What it opens: one or more of push, devices, read, recall
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
    /// List the secrets: what they open and until when
    List {
        /// The app
        app_id: AppId,
    },
    /// Remove a secret (takes effect within 5 s)
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
            let mut app = find(index, &app_id).await?;
            let secret = read_or_generate(secret_file)?;
            let scopes: Scopes = scope.into_iter().collect();
            app.add_secret(name.clone(), &secret, scopes, UnixMillis::now(), expires)?;
            store(index, &app).await?;
            show_secret(&app, name.as_str(), &secret, out)
        }
        SecretCommand::List { app_id } => list(&find(index, &app_id).await?, out),
        SecretCommand::Revoke { app_id, name } => {
            let mut app = find(index, &app_id).await?;
            if !app.revoke_secret(&name) {
                bail!(
                    "{app_id} has no named secret {name} (the default one is replaced with pushctl \
                     app rotate-secret)"
                );
            }
            store(index, &app).await?;
            out.result(
                format!("revoked {name} of {app_id}"),
                &json!({ "app_id": app_id, "revoked": name }),
            )
        }
    }
}

fn list(app: &App, out: Output) -> anyhow::Result<()> {
    let now = UnixMillis::now();
    let mut table = Table::new(&["SECRET", "SCOPES", "STATE", "MADE", "EXPIRES"]);
    let mut rows = Vec::new();
    for secret in app.all_secrets() {
        let valid = secret.is_valid(now);
        let time = |time: Option<UnixMillis>, none: &str| {
            time.map_or_else(|| none.to_owned(), |time| time.to_string())
        };
        table.row([
            secret.name.to_owned(),
            secret.scopes.to_string(),
            if valid { "valid" } else { "invalid" }.to_owned(),
            time(secret.made_at, "unknown"),
            time(secret.expires_at, "never"),
        ]);
        rows.push(json!({
            "name": secret.name,
            "scopes": secret.scopes,
            "valid": valid,
            "made_at": secret.made_at,
            "expires_at": secret.expires_at,
        }));
    }
    out.result(table, &rows)
}
