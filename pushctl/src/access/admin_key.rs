//! `pushctl admin-key`: makes, lists and revokes keys of the admin API. The first one is made here, on a machine
//! that reaches the index; later ones can be made through the API as well.

use clap::{
    Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use push_index::Index;
use push_model::{
    admin_key::Role,
    ids::{AppId, SecretName},
};
use push_operator::{
    admin_key::{self, AdminKeyView},
    audit::Actor,
};

use crate::output::{Output, Table};

/// Commands on keys of the admin API.
#[derive(Debug, Subcommand)]
pub enum AdminKeyCommand {
    /// Make a key and print it, once
    Add {
        /// The name of the key: 1–64 of A-Z a-z 0-9 _ . -, but not . or ..
        name: SecretName,
        /// viewer reads; operator recalls, replays and changes devices, too; admin does everything
        #[arg(long, value_parser = role())]
        role: Role,
        /// Open this app alone
        #[arg(long, value_name = "APP_ID")]
        app: Option<AppId>,
    },
    /// List the keys, with their roles and last uses
    List,
    /// Revoke a key; it opens nothing from now on
    Revoke {
        /// The key
        name: SecretName,
    },
}

fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::name)).try_map(|name| name.parse::<Role>())
}

impl AdminKeyCommand {
    /// Returns true if the command may be the first one on a store, which it makes.
    pub(crate) fn makes_store(&self) -> bool {
        matches!(self, Self::Add { .. })
    }
}

/// Runs the command.
///
/// # Errors
/// If the key cannot be made, there is no such key, or the index did not answer.
pub async fn run(
    command: AdminKeyCommand,
    index: &dyn Index,
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        AdminKeyCommand::Add { name, role, app } => {
            let new = admin_key::add(index, actor, name, role, app).await?;
            out.result(new.key.expose(), &new)?;
            if !out.json {
                out.note("this key is not shown again: send it as `Authorization: Bearer KEY`");
            }
            Ok(())
        }
        AdminKeyCommand::List => {
            let keys = admin_key::list(index).await?;
            let text =
                if keys.is_empty() { "no keys".to_owned() } else { table(&keys).to_string() };
            out.result(text, &keys)
        }
        AdminKeyCommand::Revoke { name } => {
            let done = admin_key::revoke(index, actor, name).await?;
            out.result(format!("revoked {}", done.revoked), &done)
        }
    }
}

fn table(keys: &[AdminKeyView]) -> Table {
    let mut table =
        Table::new(&["NAME", "ROLE", "APP", "MADE", "LAST USED"]).without_first(&["MADE"]);
    for key in keys {
        let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        table.row([
            key.name.to_string(),
            key.role.to_string(),
            known(key.app_id.as_ref().map(ToString::to_string)),
            key.made_at.to_string(),
            known(key.last_used_at.map(|at| at.to_string())),
        ]);
    }
    table
}
