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
        use MessageState::{Accepted, Done, Expired, Recalled, Sending};
        for state in [Accepted, Sending, Done, Recalled, Expired] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
