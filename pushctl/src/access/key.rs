//! `pushctl key`: makes, replaces and shows the keys that sign the MQTT logins of devices.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use clap::Subcommand;
use push_boot::{credentials::CredentialSettings, data_dir, settings::duration};
use push_credentials::{Rotation, SealFile};
use push_index::Index;
use push_operator::{
    app::reseal::{NotResealed, Resealed, reseal},
    audit::Actor,
    keys::{self, KeyView, PublicKeys, SealChange, SealKeyView},
};

use crate::{
    confirm::Confirmation,
    output::{Output, Table},
};

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
        /// The answer to the question
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// List the keys, without their private parts
    List,
    /// Print the public keys, for brokers that check logins themselves: PEM, or a JSON Web Key Set
    /// with --json
    Public,
    /// Make the file of the keys that seal accounts at providers, or add a key to it
    Seal {
        /// The file, which only its owner will be able to read
        file: PathBuf,
        /// Add a key to the file that is there, which seals from --lead on; the others go on opening. Then run
        /// `pushctl key reseal`, and --drop-earlier
        #[arg(long, conflicts_with = "drop_earlier")]
        rotate: bool,
        /// Give programs this long to learn of the new key
        #[arg(long, value_name = "TIME", default_value = "1min", value_parser = duration)]
        lead: Duration,
        /// Remove all keys but the one that seals, after `pushctl key reseal`. Refused while an account needs
        /// another one
        #[arg(long)]
        drop_earlier: bool,
        /// The answer to the question
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Seal the accounts of all apps with the newest key of --seal-key
    Reseal,
}

impl KeyCommand {
    /// Returns true if the command changes something and so is recorded in the audit trail.
    pub(crate) fn is_change(&self) -> bool {
        matches!(self, Self::Create | Self::Rotate { .. } | Self::Seal { .. } | Self::Reseal)
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
    seal: impl FnOnce() -> anyhow::Result<Arc<SealFile>>,
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
        KeyCommand::Rotate { lead, overlap, confirmation } => {
            if overlap.is_some_and(|overlap| overlap.is_zero()) {
                let loss = async || Ok("ends the MQTT logins of all devices".to_owned());
                confirmation.ask(loss, out).await?;
            }
            let rotation = Rotation { lead, overlap: overlap.unwrap_or(settings.token_ttl) };
            print(&keys::rotate(&file, rotation, index, actor).await?, out)
        }
        KeyCommand::Seal { file, rotate, lead, drop_earlier, confirmation } => {
            if drop_earlier {
                let loss = async || {
                    Ok(format!(
                        "removes the earlier keys from {}, and with them every account that \
                         `pushctl key reseal` has not sealed anew",
                        file.display()
                    ))
                };
                confirmation.ask(loss, out).await?;
            }
            let change = match (rotate, drop_earlier) {
                (true, _) => SealChange::Rotate { lead },
                (_, true) => SealChange::DropEarlier,
                _ => SealChange::Create,
            };
            let keys = keys::seal(&file, change, index, actor).await?;
            print_seal(&keys, out)
        }
        KeyCommand::Reseal => {
            let index = index.context("the index is needed to seal accounts anew")?;
            let resealed = reseal(index, &*seal()?, actor).await?;
            out.result(describe(&resealed), &resealed)?;
            ensure!(
                resealed.failed.is_empty(),
                "{} accounts were not sealed: set them again or remove them, and run the command again",
                resealed.failed.len()
            );
            Ok(())
        }
        KeyCommand::List => print(&keys::list(&file)?, out),
        KeyCommand::Public => {
            let PublicKeys { pem, jwks } = keys::public(&file)?;
            out.result(pem, &jwks)
        }
    }
}

fn describe(resealed: &Resealed) -> String {
    let mut text = format!("sealed {} accounts with the newest key", resealed.resealed);
    for NotResealed { app_id, transport, why } in &resealed.failed {
        let transport = transport.map_or_else(String::new, |kind| format!(" at {}", kind.name()));
        text.push_str(&format!("\nnot sealed: {app_id}{transport}: {why}"));
    }
    text
}

fn print_seal(keys: &[SealKeyView], out: Output) -> anyhow::Result<()> {
    let mut table = Table::new(&["KEY", "CREATED", "SEALS FROM"]);
    for SealKeyView { id, created_at, seals_from } in keys {
        table.row([id.clone(), created_at.to_string(), seals_from.to_string()]);
    }
    out.result(table, &keys)
}

fn print(keys: &[KeyView], out: Output) -> anyhow::Result<()> {
    let mut table = Table::new(&["KEY", "STATE", "CREATED", "SIGNS FROM", "ACCEPTED UNTIL"])
        .without_first(&["CREATED", "SIGNS FROM"]);
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
