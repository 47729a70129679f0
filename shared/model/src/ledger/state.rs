//! Where a message is in its life.

use serde::{Deserialize, Serialize};

/// Where a message is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing is sent yet.
    Accepted,
    /// Devices are being served.
    Sending,
    /// Every device is settled.
    Done,
    /// It was recalled.
    Recalled,
    /// It expired before every device was served.
    Expired,
}

impl State {
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
        use State::{Accepted, Done, Expired, Recalled, Sending};
        for state in [Accepted, Sending, Done, Recalled, Expired] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
