//! The stages in the life of a message.

use serde::{Deserialize, Serialize};

/// The stage of a message in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// No device of its audience was counted yet.
    Accepted,
    /// Devices are being sent to.
    Sending,
    /// Every device has an outcome.
    Done,
    /// It was recalled.
    Recalled,
    /// It is over, and a device expired or its outcome was lost.
    Expired,
}

impl MessageState {
    /// All states, in the order in which a message may have them.
    pub const ALL: [Self; 5] =
        [Self::Accepted, Self::Sending, Self::Done, Self::Recalled, Self::Expired];

    /// The state with this name, if there is one.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Sending => "sending",
            Self::Done => "done",
            Self::Recalled => "recalled",
            Self::Expired => "expired",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_one_name() {
        for state in MessageState::ALL {
            assert_eq!(MessageState::of_name(state.name()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
