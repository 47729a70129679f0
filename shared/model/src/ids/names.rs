//! The names of apps, devices, users, topics and secrets.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::text::Text;

/// Why a text is no identifier; the message is for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {max} characters of {alphabet}")]
pub struct BadId {
    max: usize,
    alphabet: &'static str,
}

fn check(text: &str, max: usize, alphabet: &'static str, extra: &[u8]) -> Result<(), BadId> {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || extra.contains(b);
    if text.is_empty() || text.len() > max || !text.as_bytes().iter().all(allowed) {
        return Err(BadId { max, alphabet });
    }
    Ok(())
}

/// An app: 1–64 of `A-Z a-z 0-9 _ . -`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct AppId(Arc<str>);

impl AppId {
    /// The longest App ID, in characters.
    pub const MAX_LEN: usize = 64;

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AppId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        check(text, Self::MAX_LEN, "A-Z a-z 0-9 _ . -", b"_.-")?;
        Ok(Self(text.into()))
    }
}

/// A device within its app: 1–128 of `A-Z a-z 0-9 _ . : -`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ClientId(Box<str>);

impl ClientId {
    /// The longest Client ID, in characters.
    pub const MAX_LEN: usize = 128;

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClientId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        check(text, Self::MAX_LEN, "A-Z a-z 0-9 _ . : -", b"_.:-")?;
        Ok(Self(text.into()))
    }
}

/// A secret within its app: 1–64 of `A-Z a-z 0-9 _ . -`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct SecretName(Arc<str>);

impl SecretName {
    /// The longest name, in characters.
    pub const MAX_LEN: usize = 64;

    /// The name under which someone acts who came by a link that a program printed on its terminal.
    pub fn terminal() -> Self {
        Self(Arc::from("terminal"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        check(text, Self::MAX_LEN, "A-Z a-z 0-9 _ . -", b"_.-")?;
        Ok(Self(text.into()))
    }
}

/// A user of an app, as the app's backend names him: 1–128 of `A-Z a-z 0-9 _ . : - @ + | ~ =`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct UserId(Arc<str>);

impl UserId {
    /// The longest user id, in characters.
    pub const MAX_LEN: usize = 128;

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        check(text, Self::MAX_LEN, "A-Z a-z 0-9 _ . : - @ + | ~ =", b"_.:-@+|~=")?;
        Ok(Self(text.into()))
    }
}

/// A topic that devices of an app may have: 1–64 of `A-Z a-z 0-9 _ . : - ~ % /`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Topic(Arc<str>);

impl Topic {
    /// The longest topic, in characters.
    pub const MAX_LEN: usize = 64;

    /// The topic as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The topic as text that shares its memory.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl FromStr for Topic {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        check(text, Self::MAX_LEN, "A-Z a-z 0-9 _ . : - ~ % /", b"_.:-~%/")?;
        Ok(Self(text.into()))
    }
}

macro_rules! text_id {
    ($name:ident) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Text::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

text_id!(AppId);
text_id!(ClientId);
text_id!(SecretName);
text_id!(UserId);
text_id!(Topic);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_id_has_1_to_64_characters_of_its_alphabet() {
        for good in ["a", "A-z_0.9", &"x".repeat(64)] {
            assert!(good.parse::<AppId>().is_ok(), "{good}");
        }
        for bad in ["", "a b", "a/b", "a:b", "é", "a\0", &"x".repeat(65)] {
            assert!(bad.parse::<AppId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_client_id_also_allows_colons_and_128_characters() {
        assert!("a:b".parse::<ClientId>().is_ok());
        assert!("x".repeat(128).parse::<ClientId>().is_ok());
        assert!("x".repeat(129).parse::<ClientId>().is_err());
        assert!("a+b".parse::<ClientId>().is_err());
    }

    #[test]
    fn ids_in_json_are_checked_like_ids_in_paths() {
        assert!(serde_json::from_str::<ClientId>("\"a b\"").is_err());
        assert_eq!(serde_json::to_string(&"a".parse::<ClientId>().unwrap()).unwrap(), "\"a\"");
    }
}
