//! `pushctl app secret`: the named secrets of an app, each for a part of the HTTP API.

use std::path::PathBuf;

use clap::Subcommand;
use push_boot::settings::duration;
use push_index::Index;
use push_model::{
    app::Scope,
    ids::{AppId, SecretName},
    time::UnixMillis,
};
use push_operator::{app::secrets, audit::Actor};

use super::{secret_file::read_or_generate, table};
use crate::output::Output;

/// Commands on the secrets of an app.
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Add a secret for a part of the API and print it, once
    Add {
        /// The app
        app_id: AppId,
        /// The name of the secret: 1–64 of A-Z a-z 0-9 _ . -, but not . or ..
        name: SecretName,
        /// The calls that it is valid for: one or more of push, devices, read, recall
        #[arg(long, value_name = "SCOPE,…", value_delimiter = ',', required = true)]
        scope: Vec<Scope>,
        /// Take the secret from this file instead of making one
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// Let it expire after this duration (90d), or at this time (2030-01-31T00:00:00Z); never
        /// if not given
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

/// Parses a time in the future, as a duration or as RFC 3339.
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
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        SecretCommand::Add { app_id, name, scope, secret_file, expires } => {
            let secret = read_or_generate(secret_file)?;
            let scopes = scope.into_iter().collect();
            let added = secrets::add(index, actor, &app_id, name, secret, scopes, expires).await?;
            table::print_secret(&added, out)
        }
        SecretCommand::List { app_id } => {
            let secrets = secrets::list(index, &app_id).await?;
            out.result(table::secrets(&secrets), &secrets)
        }
        SecretCommand::Revoke { app_id, name } => {
            let done = secrets::revoke(index, actor, &app_id, name, None).await?;
            out.result(format!("revoked {} of {}", done.revoked, done.app_id), &done)
        }
    }
}
