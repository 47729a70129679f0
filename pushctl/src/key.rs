//! `pushctl key`: makes, replaces and shows the keys that sign the MQTT logins of devices.

use std::{cmp::Ordering, path::Path, time::Duration};

use clap::Subcommand;
use push_boot::{credentials::CredentialSettings, data_dir, settings::duration};
use push_credentials::{Key, KeyFile, KeySet, Rotation};
use push_model::{
    audit::{Action, AuditEvent},
    time::UnixMillis,
};
use serde_json::{Value, json};

use crate::{
    audit,
    output::{Output, Table},
};

/// What to do with the keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make the key file, with one key
    Create,
    /// Replace the key that signs: the new one is known for --lead before it signs, and the earlier
    /// ones are accepted for --overlap after that. Running programs read the file again within 5 s
    Rotate {
        /// How long programs and brokers have to learn of the new key, before it signs
        #[arg(long, value_name = "TIME", default_value = "1min", value_parser = duration)]
        lead: Duration,
        /// How long logins that an earlier key signed are accepted after that; 0s ends them, as
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

/// What the audit trail says of a command; none for one that changes nothing.
pub fn audit_event(command: &KeyCommand) -> Option<AuditEvent> {
    match command {
        KeyCommand::Create => Some(audit::event(Action::DeviceKeyMade)),
        KeyCommand::Rotate { .. } => Some(audit::event(Action::DeviceKeyRotated)),
        KeyCommand::List | KeyCommand::Public => None,
    }
}

/// Runs the command.
///
/// # Errors
/// If the key file is missing (there already, for `create`), or cannot be read or written.
pub fn run(
    command: KeyCommand,
    settings: &CredentialSettings,
    data_dir: &Path,
    out: Output,
) -> anyhow::Result<()> {
    let file = settings.key_file_in(data_dir);
    let now = UnixMillis::now();
    match command {
        KeyCommand::Create => {
            if settings.key_file.is_none() {
                data_dir::make(data_dir)?;
            }
            let keys = KeyFile::create(&file, now)?;
            out.note(format_args!("made {}", file.display()));
            list(&keys, now, out)
        }
        KeyCommand::Rotate { lead, overlap } => {
            let overlap = overlap.unwrap_or(settings.token_ttl);
            list(&KeyFile::rotate(&file, Rotation { lead, overlap }, now)?, now, out)
        }
        KeyCommand::List => list(&KeyFile::open(&file)?.current(), now, out),
        KeyCommand::Public => {
            let keys = KeyFile::open(&file)?.current();
            let accepted = keys.keys().iter().filter(|key| key.verifies_at(now));
            let pem: String = accepted.map(|key| key.public().pem()).collect();
            out.result(pem, &keys.jwks(now))
        }
    }
}

fn list(keys: &KeySet, now: UnixMillis, out: Output) -> anyhow::Result<()> {
    let mut table = Table::new(&["KEY", "STATE", "CREATED", "SIGNS FROM", "ACCEPTED UNTIL"]);
    let mut rows = Vec::new();
    for key in keys.keys() {
        let state = state(key, keys, now);
        table.row([
            key.kid().to_owned(),
            state.to_owned(),
            key.created_at.to_string(),
            key.signs_from.to_string(),
            key.verifies_until
                .map_or_else(|| "until replaced".to_owned(), |until| until.to_string()),
        ]);
        rows.push(describe(key, state));
    }
    out.result(table, &rows)
}

fn describe(key: &Key, state: &str) -> Value {
    json!({
        "kid": key.kid(),
        "state": state,
        "created_at": key.created_at,
        "signs_from": key.signs_from,
        "verifies_until": key.verifies_until,
    })
}

/// What a key is good for now. One that was replaced before it began to sign is accepted only.
fn state(key: &Key, keys: &KeySet, now: UnixMillis) -> &'static str {
    let place = |kid: &str| keys.keys().iter().position(|key| key.kid() == kid);
    let signing = keys.signing(now).ok().and_then(|signing| place(signing.kid()));
    if !key.verifies_at(now) {
        return "ended";
    }
    match place(key.kid()).cmp(&signing) {
        Ordering::Equal => "signs",
        Ordering::Greater => "next",
        Ordering::Less => "accepted",
    }
}
