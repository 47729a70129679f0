//! `pushctl key`: makes, replaces and shows the keys that sign the MQTT logins of devices.

use std::{path::Path, time::Duration};

use clap::Subcommand;
use push_boot::{credentials::CredentialSettings, data_dir, settings::duration};
use push_credentials::Rotation;
use push_index::Index;
use push_operator::{
    audit::Actor,
    keys::{self, KeyView, PublicKeys},
};

use crate::output::{Output, Table};

/// Commands on the keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make the key file, with one key
    Create,
    /// Replace the key that signs: the new one is known for --lead before it signs, and the earlier
    /// ones are accepted for --overlap after that. Running programs read the file again within 5 s
    Rotate {
        /// Give programs and brokers this long to learn of the new key, before it signs
        #[arg(long, value_name = "TIME", default_value = "1min", value_parser = duration)]
        lead: Duration,
        /// Accept logins that an earlier key signed for this long after that; 0s ends them, as
        /// after a theft [default: --device-token-ttl]
        #[arg(long, value_name = "TIME", value_parser = duration)]
        overlap: Option<Duration>,
    },
    /// List the keys, without their private parts
    List,
    /// Print the public keys, for brokers that check logins themselves: PEM, or a JSON Web Key Set
    /// with --json
    Public,
}

impl KeyCommand {
    /// Returns true if the command changes something and so is recorded in the audit trail.
    pub(crate) fn is_change(&self) -> bool {
        matches!(self, Self::Create | Self::Rotate { .. })
    }
}

/// Runs the command. A change is recorded in the index, if there is one.
///
/// # Errors
/// If the key file is missing (for `create`: if it exists) or cannot be read or written, or if a
/// change could not be recorded.
pub async fn run(
    command: KeyCommand,
    settings: &CredentialSettings,
    data_dir: &Path,
    index: Option<&dyn Index>,
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    let file = settings.key_file_in(data_dir);
    match command {
        KeyCommand::Create => {
            if settings.key_file.is_none() {
                data_dir::make(data_dir)?;
            }
            let keys = keys::create(&file, index, actor).await?;
            out.note(format_args!("made {}", file.display()));
            print(&keys, out)
        }
        KeyCommand::Rotate { lead, overlap } => {
            let rotation = Rotation { lead, overlap: overlap.unwrap_or(settings.token_ttl) };
            print(&keys::rotate(&file, rotation, index, actor).await?, out)
        }
        KeyCommand::List => print(&keys::list(&file)?, out),
        KeyCommand::Public => {
            let PublicKeys { pem, jwks } = keys::public(&file)?;
            out.result(pem, &jwks)
        }
    }
}

fn print(keys: &[KeyView], out: Output) -> anyhow::Result<()> {
    let mut table = Table::new(&["KEY", "STATE", "CREATED", "SIGNS FROM", "ACCEPTED UNTIL"]);
    for key in keys {
        let until = key.verifies_until;
        table.row([
            key.kid.clone(),
            key.state.name().to_owned(),
            key.created_at.to_string(),
            key.signs_from.to_string(),
            until.map_or_else(|| "until replaced".to_owned(), |until| until.to_string()),
        ]);
    }
    out.result(table, &keys)
}
