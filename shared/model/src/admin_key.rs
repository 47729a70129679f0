//! The keys of the admin API and the console: a name, a role, and perhaps one app.
//!
//! A key has 256 random bits and is shown once. The index has its SHA-256 digest alone, under which the key
//! is found: what has that much randomness needs neither salt nor a slow hash.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rand::Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{
    app::AppKey,
    ids::{AppId, SecretName},
    time::UnixMillis,
};

/// The most keys of an installation.
pub const MAX_ADMIN_KEYS: usize = 256;

/// The beginning of every key, by which scanners for leaked secrets find it.
const PREFIX: &str = "pak_";
/// The characters behind it: 32 bytes in base64url without padding.
const CHARACTERS: usize = 43;
/// The unit in which the last use of a key is known, in milliseconds.
const USE_PRECISION: u64 = 3_600_000;

/// The rights of a key. Each role has those of the roles before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything but secrets.
    Viewer,
    /// Recalls messages, replays and drops dead letters, changes devices, tries accounts.
    Operator,
    /// Makes, changes and removes apps, their secrets, limits and accounts.
    Admin,
}

impl Role {
    /// All roles, the weakest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// There is no role of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a role is viewer, operator or admin")]
pub struct NoSuchRole;

impl FromStr for Role {
    type Err = NoSuchRole;

    fn from_str(name: &str) -> Result<Self, NoSuchRole> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or(NoSuchRole)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A key as plain text. Its `Debug` form does not show it.
#[derive(Clone)]
pub struct AdminKeyText(Box<str>);

impl AdminKeyText {
    /// A new key.
    pub fn generate() -> Self {
        let mut bytes = [0_u8; 32];
        rand::rng().fill_bytes(&mut bytes);
        Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)).into())
    }

    /// Returns the key as plain text, to be shown once.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AdminKeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminKeyText(…)")
    }
}

/// The digest of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyDigest(#[serde(with = "hex")] [u8; 32]);

impl KeyDigest {
    /// The digest of a key.
    pub fn of(key: &AdminKeyText) -> Self {
        Self(Sha256::digest(key.expose()).into())
    }

    /// The digest of what a caller presents. None if that has not the form of a key, which costs nothing more.
    pub fn of_presented(text: &[u8]) -> Option<Self> {
        let random = text.strip_prefix(PREFIX.as_bytes())?;
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_key = random.len() == CHARACTERS && random.iter().all(allowed);
        is_key.then(|| Self(Sha256::digest(text).into()))
    }

    /// Returns true if both are the same. The comparison takes the same time wherever they differ.
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// The digest as bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Sixty-four hexadecimal digits.
impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(…)")
    }
}

/// A key as it is stored. A record with a field that this version does not know is not read, because the field
/// may restrict the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminKey {
    /// The name that the operator gave it.
    pub name: SecretName,
    /// Its rights.
    pub role: Role,
    /// The only app that it opens; none for all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub app: Option<AppId>,
    /// The number of apps of that name that were removed before the app. The key opens no later app of the
    /// name.
    #[serde(skip_serializing_if = "is_first", default)]
    pub generation: u64,
    /// When it was made.
    pub made_at: UnixMillis,
    /// Its digest.
    pub sha256: KeyDigest,
}

fn is_first(number: &u64) -> bool {
    *number == 0
}

impl AdminKey {
    /// The only app that it opens; none for all.
    pub fn app_key(&self) -> Option<AppKey> {
        let id = self.app.clone()?;
        Some(AppKey { id, generation: self.generation })
    }
}

/// A stored key, and when it was last used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedAdminKey {
    /// The key.
    pub key: AdminKey,
    /// The hour of its last use; none if it was not used.
    pub last_used_at: Option<UnixMillis>,
}

/// Returns the time that is stored for a use: its hour.
pub const fn hour_of_use(at: UnixMillis) -> UnixMillis {
    UnixMillis(at.0 - at.0 % USE_PRECISION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_digest_and_nothing_else_has_one() {
        let key = AdminKeyText::generate();
        let presented = KeyDigest::of_presented(key.expose().as_bytes()).unwrap();
        assert!(presented.is(&KeyDigest::of(&key)));
        assert!(!presented.is(&KeyDigest::of(&AdminKeyText::generate())));
        let text = key.expose();
        for wrong in
            ["", "pak_", &text[1..], &text[..46], &format!("{text}A"), &text.replace('_', " ")]
        {
            assert!(KeyDigest::of_presented(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn neither_a_key_nor_its_digest_prints() {
        let key = AdminKeyText::generate();
        assert_eq!(format!("{key:?} {:?}", KeyDigest::of(&key)), "AdminKeyText(…) KeyDigest(…)");
    }

    #[test]
    fn a_stored_key_is_read_again_unless_it_has_what_this_version_does_not_know() {
        let text = AdminKeyText::generate();
        let key = AdminKey {
            name: "web".parse().unwrap(),
            role: Role::Operator,
            app: Some("a".parse().unwrap()),
            generation: 2,
            made_at: UnixMillis(7),
            sha256: KeyDigest::of(&text),
        };
        let stored = serde_json::to_value(&key).unwrap();
        assert!(!stored.to_string().contains(text.expose()));
        assert_eq!(serde_json::from_value::<AdminKey>(stored.clone()).unwrap(), key);
        for (field, value) in [("only_from", "10.0.0.0/8"), ("role", "auditor")] {
            let mut later = stored.clone();
            later[field] = value.into();
            assert!(serde_json::from_value::<AdminKey>(later).is_err(), "{field}");
        }
    }

    #[test]
    fn roles_are_ordered_and_a_use_is_known_by_its_hour() {
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
        assert_eq!("operator".parse(), Ok(Role::Operator));
        assert_eq!("root".parse::<Role>(), Err(NoSuchRole));
        assert_eq!(hour_of_use(UnixMillis(2 * 3_600_000 + 5)), UnixMillis(2 * 3_600_000));
    }
}
