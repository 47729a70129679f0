//! The meaning of a provider's answer.

use std::time::Duration;

use push_model::time::UnixMillis;

/// The meaning of an answer for one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The provider took the message.
    Sent,
    /// The device does not exist any more.
    Gone {
        /// The time since which the provider knows. A device that registered later stays.
        since: Option<UnixMillis>,
        /// The provider's code.
        code: &'static str,
    },
    /// The provider takes no message for this device. It stays registered.
    DeviceRefused {
        /// The provider's code.
        code: &'static str,
        /// True if many of these mean that the account is the wrong one.
        suspicious: bool,
    },
    /// No device can get this message over this provider.
    MessageRefused {
        /// The provider's code.
        code: &'static str,
    },
    /// The provider took nothing for now.
    Throttled {
        /// Who has to wait.
        whom: Whom,
        /// The time to wait, if the provider named one.
        wait: Option<Duration>,
    },
    /// The provider does not accept the account.
    Account(AccountFault),
    /// The provider wants a new connection. The message was not taken and may be sent again immediately.
    Reconnect,
    /// The provider failed. The message may have been taken.
    Unavailable {
        /// The time to wait, if the provider named one.
        wait: Option<Duration>,
    },
}

impl Verdict {
    /// Returns the provider's code, or ours; `None` for what has no code.
    pub fn code(&self) -> Option<&'static str> {
        match *self {
            Self::Gone { code, .. }
            | Self::DeviceRefused { code, .. }
            | Self::MessageRefused { code } => Some(code),
            Self::Account(fault) => fault.code(),
            Self::Sent | Self::Throttled { .. } | Self::Reconnect | Self::Unavailable { .. } => {
                None
            }
        }
    }
}

impl AccountFault {
    /// Returns the provider's code, or ours; `None` for a failure that passes.
    pub fn code(&self) -> Option<&'static str> {
        match *self {
            Self::Renew { code } | Self::Stop { code } | Self::Suspect { code } => Some(code),
            Self::Unavailable { .. } => None,
        }
    }
}

/// Who has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// This device alone.
    Device,
    /// All devices of the account.
    Account,
}

/// The reason for which an account does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountFault {
    /// The authorization is not accepted: renew it once, and send again. If the new one is not accepted
    /// either, the account is to be stopped for this reason.
    Renew {
        /// The provider's code, or ours.
        code: &'static str,
    },
    /// It will not work until the operator fixes it.
    Stop {
        /// The provider's code, or ours.
        code: &'static str,
    },
    /// An answer that comes from a wrong account as well as from a wrong device: the device is refused,
    /// and many of them are reported to the operator.
    Suspect {
        /// The provider's code.
        code: &'static str,
    },
    /// The service that issues authorizations failed for now.
    Unavailable {
        /// The time to wait, if it named one.
        wait: Option<Duration>,
    },
}
