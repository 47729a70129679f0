//! The calls that a secret of an app is valid for.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::Text;

/// A part of the HTTP API. A secret is valid for the parts that are among its scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Send pushes.
    Push,
    /// Register, read and remove devices.
    Devices,
    /// Read what became of messages, and count audiences.
    Read,
    /// Recall messages.
    Recall,
}

/// The text is the name of no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a scope is one of push, devices, read, recall")]
pub struct NoSuchScope;

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 4] = [Self::Push, Self::Devices, Self::Read, Self::Recall];

    /// The name on the command line, in records and in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Devices => "devices",
            Self::Read => "read",
            Self::Recall => "recall",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl FromStr for Scope {
    type Err = NoSuchScope;

    fn from_str(text: &str) -> Result<Self, NoSuchScope> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or(NoSuchScope)
    }
}

/// A set of scopes. In JSON it is a list of names; a name that this build does not know is left
/// out, so that it makes a secret valid for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// All of them.
    pub const ALL: Self =
        Self(Scope::Push.bit() | Scope::Devices.bit() | Scope::Read.bit() | Scope::Recall.bit());

    /// Returns true if the scope is one of these.
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// These scopes, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

/// The names, with commas between them.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, scope) in self.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{}", scope.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Scope::name))
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names: Vec<Text<'de>> = Deserialize::deserialize(deserializer)?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_stored_by_name_and_a_name_of_a_later_build_opens_nothing() {
        let scopes: Scopes = [Scope::Recall, Scope::Push].into_iter().collect();
        let stored = serde_json::to_string(&scopes).unwrap();
        assert_eq!((&*stored, &*scopes.to_string()), (r#"["push","recall"]"#, "push,recall"));
        assert_eq!(serde_json::from_str::<Scopes>(&stored).unwrap(), scopes);
        let later: Scopes = serde_json::from_str(r#"["everything","read"]"#).unwrap();
        assert_eq!(later, [Scope::Read].into_iter().collect());
        assert_eq!(Scopes::ALL.iter().count(), Scope::ALL.len());
    }
}
