//! A quota of an app: devices, messages that wait, or ledger entries.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// The quota of an app. In JSON a number or `"none"`; absent for the service's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub enum AppQuota {
    /// The service's default.
    #[default]
    Default,
    /// As many as there is room for.
    None,
    /// At most this many.
    AtMost(NonZeroU32),
}

impl AppQuota {
    /// The quota in force, given the service's default; none means that there is none.
    pub fn or_default(self, default: Option<NonZeroU32>) -> Option<NonZeroU32> {
        match self {
            Self::Default => default,
            Self::None => None,
            Self::AtMost(most) => Some(most),
        }
    }

    /// Returns true if it is the service's default, which is not stored.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::Default
    }
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    AtMost(NonZeroU32),
    Word(String),
}

const NONE: &str = "none";

impl From<Stored> for AppQuota {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::AtMost(most) => Self::AtMost(most),
            Stored::Word(word) if word == NONE => Self::None,
            // A word of a later build.
            Stored::Word(_) => Self::Default,
        }
    }
}

impl From<AppQuota> for Stored {
    fn from(quota: AppQuota) -> Self {
        match quota {
            AppQuota::AtMost(most) => Self::AtMost(most),
            AppQuota::None => Self::Word(NONE.to_owned()),
            AppQuota::Default => Self::Word("default".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_stored_as_a_number_or_none_and_another_word_is_the_default() {
        let (five, six) = (NonZeroU32::new(5).unwrap(), NonZeroU32::new(6));
        for (quota, stored, in_force) in [
            (AppQuota::AtMost(five), "5", Some(five)),
            (AppQuota::None, r#""none""#, None),
            (AppQuota::Default, r#""default""#, six),
        ] {
            assert_eq!(serde_json::to_string(&quota).unwrap(), stored);
            assert_eq!(serde_json::from_str::<AppQuota>(stored).unwrap(), quota);
            assert_eq!(quota.or_default(six), in_force);
        }
        let later: AppQuota = serde_json::from_str(r#""of the moon""#).unwrap();
        assert_eq!(later, AppQuota::Default);
    }
}
