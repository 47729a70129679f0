//! The outcomes of a message's devices, and the reasons.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why a device was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// No device with this client id.
    UnknownClient,
    /// The transport says that the device is gone; it was removed.
    Gone,
    /// The device is not connected and the broker keeps no session for it.
    NoSubscriber,
    /// The transport refused the message for this device.
    Refused,
    /// The device's transport is not configured in this worker.
    NoTransport,
    /// Every try failed.
    RetriesExhausted,
    /// Its outcome was not recorded: the ledger lost the record, or no worker ran until the entry
    /// was written off. It may have been sent to.
    Unrecorded,
    /// The index holds a record of it that cannot be read. A broadcast that reads such a record
    /// counts it as a device of its audience.
    Unreadable,
    /// The device is away, and as many messages wait for it at the broker as may wait.
    QueueFull,
    /// Its app has no account at the provider that reaches it.
    NoAccount,
    /// Its provider does not carry a message of this size.
    TooLarge,
    /// The server of its endpoint, or of its app's webhook, has only addresses that may not be reached.
    ForbiddenAddress,
    /// The push was for a user, and the device belongs to the user no more.
    Reassigned,
}

impl FailReason {
    /// Every reason.
    pub const ALL: [Self; 13] = [
        Self::UnknownClient,
        Self::Gone,
        Self::NoSubscriber,
        Self::Refused,
        Self::NoTransport,
        Self::RetriesExhausted,
        Self::Unrecorded,
        Self::Unreadable,
        Self::QueueFull,
        Self::NoAccount,
        Self::TooLarge,
        Self::ForbiddenAddress,
        Self::Reassigned,
    ];

    /// The name in JSON, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownClient => "unknown_client",
            Self::Gone => "gone",
            Self::NoSubscriber => "no_subscriber",
            Self::Refused => "refused",
            Self::NoTransport => "no_transport",
            Self::RetriesExhausted => "retries_exhausted",
            Self::Unrecorded => "unrecorded",
            Self::Unreadable => "unreadable",
            Self::QueueFull => "queue_full",
            Self::NoAccount => "no_account",
            Self::TooLarge => "too_large",
            Self::ForbiddenAddress => "forbidden_address",
            Self::Reassigned => "reassigned",
        }
    }

    /// The reason with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// Why a try gave a device no outcome, so that the device is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryReason {
    /// The transport as a whole could not be reached.
    TransportAway,
    /// The transport is overloaded, or its quota is used up.
    Busy,
    /// The transport failed without saying that trying again is pointless.
    Error,
    /// The transport took the message and never answered: it may have been sent.
    Unanswered,
}

impl RetryReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::TransportAway, Self::Busy, Self::Error, Self::Unanswered];

    /// The name in JSON and in the stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TransportAway => "transport_away",
            Self::Busy => "busy",
            Self::Error => "error",
            Self::Unanswered => "unanswered",
        }
    }
}

/// Tries that gave no outcome, by reason. A device counts once for each try.
pub type Retried = BTreeMap<RetryReason, u64>;

/// The number of devices with each outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Outcomes {
    /// Devices whose message the transport acknowledged.
    pub sent: u64,
    /// Given up, by reason.
    pub failed: BTreeMap<FailReason, u64>,
    /// Not sent before the message expired.
    pub expired: u64,
    /// Not sent because the message was recalled.
    pub recalled: u64,
}

impl Outcomes {
    /// Adds one to the failures of this reason.
    pub fn fail(&mut self, reason: FailReason) {
        *self.failed.entry(reason).or_default() += 1;
    }

    /// Adds other counts to these, up to the largest number: a damaged store can hold any number.
    pub fn add(&mut self, more: &Self) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut self.sent, more.sent);
        add(&mut self.expired, more.expired);
        add(&mut self.recalled, more.recalled);
        for (reason, count) in &more.failed {
            add(self.failed.entry(*reason).or_default(), *count);
        }
    }

    /// All devices that have an outcome.
    pub fn total(&self) -> u64 {
        let counts = self.failed.values().chain([&self.sent, &self.expired, &self.recalled]);
        counts.copied().fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_keeps_its_name_in_json() {
        for reason in FailReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
            assert_eq!(FailReason::from_name(reason.name()), Some(reason));
        }
    }
}
