//! The keys that sign the MQTT logins of devices, and those that seal accounts at providers, in their files.

use std::{cmp::Ordering, path::Path, time::Duration};

use anyhow::Context as _;
use push_credentials::{Key, KeyFile, KeySet, Rotation, SealFile};
use push_index::Index;
use push_model::{audit::Action, time::UnixMillis};
use serde::Serialize;

use crate::{
    app::reseal::check_all_sealed,
    audit::{Actor, recorded},
};

/// A key, without its private part.
#[derive(Debug, Clone, Serialize)]
pub struct KeyView {
    /// Its id.
    pub kid: String,
    /// Its present use.
    pub state: KeyState,
    /// When it was made.
    pub created_at: UnixMillis,
    /// The time from which it signs.
    pub signs_from: UnixMillis,
    /// The time until which logins that it signed are accepted; none until it is replaced.
    pub verifies_until: Option<UnixMillis>,
}

/// The use of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// It will sign.
    Next,
    /// It signs logins.
    Signs,
    /// It no longer signs; logins that it signed are accepted.
    Accepted,
    /// It is not used any more.
    Ended,
}

impl KeyState {
    /// Its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Signs => "signs",
            Self::Accepted => "accepted",
            Self::Ended => "ended",
        }
    }
}

/// The public keys, in both forms that brokers read.
#[derive(Debug, Clone)]
pub struct PublicKeys {
    /// PEM.
    pub pem: String,
    /// A JSON Web Key Set.
    pub jwks: serde_json::Value,
}

/// Makes the key file, with one key. Without an index, only the log says who did it.
///
/// # Errors
/// If the file exists or cannot be written, or it was not recorded.
pub async fn create(
    file: &Path,
    index: Option<&dyn Index>,
    actor: &Actor,
) -> anyhow::Result<Vec<KeyView>> {
    let work = async {
        let now = UnixMillis::now();
        Ok(views(&KeyFile::create(file, now)?, now))
    };
    recorded(index, actor.event(Action::DeviceKeyMade), work).await
}

/// Replaces the key that signs. Without an index, only the log says who did it.
///
/// # Errors
/// If the file cannot be read or written, or it was not recorded.
pub async fn rotate(
    file: &Path,
    rotation: Rotation,
    index: Option<&dyn Index>,
    actor: &Actor,
) -> anyhow::Result<Vec<KeyView>> {
    let work = async {
        let now = UnixMillis::now();
        Ok(views(&KeyFile::rotate(file, rotation, now)?, now))
    };
    recorded(index, actor.event(Action::DeviceKeyRotated), work).await
}

/// Lists the keys.
///
/// # Errors
/// If the file cannot be read.
pub fn list(file: &Path) -> anyhow::Result<Vec<KeyView>> {
    Ok(views(&KeyFile::open(file)?.current(), UnixMillis::now()))
}

/// Returns the public parts of the keys whose logins are accepted now.
///
/// # Errors
/// If the file cannot be read.
pub fn public(file: &Path) -> anyhow::Result<PublicKeys> {
    let (keys, now) = (KeyFile::open(file)?.current(), UnixMillis::now());
    let accepted = keys.keys().iter().filter(|key| key.verifies_at(now));
    let pem = accepted.map(|key| key.public().pem()).collect();
    Ok(PublicKeys { pem, jwks: keys.jwks(now) })
}

/// A change of the keys that seal accounts.
#[derive(Debug, Clone, Copy)]
pub enum SealChange {
    /// Makes the file, with one key.
    Create,
    /// Adds a key, which seals from then on.
    Rotate {
        /// The time that programs have to learn of it.
        lead: Duration,
    },
    /// Removes all keys but the one that seals, if no account in the index needs another.
    DropEarlier,
}

/// A key that seals, without its secret.
#[derive(Debug, Clone, Serialize)]
pub struct SealKeyView {
    /// Its id.
    pub id: String,
    /// When it was made.
    pub created_at: UnixMillis,
    /// The time from which it seals.
    pub seals_from: UnixMillis,
}

/// Changes the file of the keys that seal accounts. Without an index, only the log says who did it.
///
/// # Errors
/// If the file cannot be made, read or written, a key that is still needed was to be dropped, or it was not
/// recorded.
pub async fn seal(
    file: &Path,
    change: SealChange,
    index: Option<&dyn Index>,
    actor: &Actor,
) -> anyhow::Result<Vec<SealKeyView>> {
    let now = UnixMillis::now();
    let action = match change {
        SealChange::Create => Action::SealKeyMade,
        SealChange::Rotate { .. } | SealChange::DropEarlier => Action::SealKeyRotated,
    };
    let work = async {
        let keys = match change {
            SealChange::Create => SealFile::create(file, now)?,
            SealChange::Rotate { lead } => {
                SealFile::rotate(file, Rotation { lead, overlap: Duration::ZERO }, now)?
            }
            SealChange::DropEarlier => {
                let index = index.context(
                    "the index must be reachable: it shows if an account needs an earlier key",
                )?;
                let checked = SealFile::open(file)?.current();
                check_all_sealed(index, &checked, now).await?;
                SealFile::change(file, |keys| {
                    keys.drop_before_newest(&checked);
                    Ok(())
                })?
            }
        };
        let view = |(id, seals_from, created_at): (&str, _, _)| SealKeyView {
            id: id.to_owned(),
            created_at,
            seals_from,
        };
        Ok(keys.list().map(view).collect())
    };
    recorded(index, actor.event(action), work).await
}

fn views(keys: &KeySet, now: UnixMillis) -> Vec<KeyView> {
    let view = |key: &Key| KeyView {
        kid: key.kid().to_owned(),
        state: state(key, keys, now),
        created_at: key.created_at,
        signs_from: key.signs_from,
        verifies_until: key.verifies_until,
    };
    keys.keys().iter().map(view).collect()
}

/// Returns what a key is used for now. A key that was replaced before it signed is only accepted.
fn state(key: &Key, keys: &KeySet, now: UnixMillis) -> KeyState {
    let place = |kid: &str| keys.keys().iter().position(|key| key.kid() == kid);
    let signing = keys.signing(now).ok().and_then(|signing| place(signing.kid()));
    if !key.verifies_at(now) {
        return KeyState::Ended;
    }
    match place(key.kid()).cmp(&signing) {
        Ordering::Equal => KeyState::Signs,
        Ordering::Greater => KeyState::Next,
        Ordering::Less => KeyState::Accepted,
    }
}
