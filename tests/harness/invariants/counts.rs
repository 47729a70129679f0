//! Counts of a message, at one instant and from one instant to a later one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Rule, Violation};

/// The counts of a message, in devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Devices of the audience that were found so far.
    pub targeted: u64,
    /// Acknowledged by the transport.
    pub sent: u64,
    /// Failed for good, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Not sent before the message expired.
    pub expired: u64,
    /// Not sent because the message was recalled.
    pub recalled: u64,
    /// Without an outcome yet.
    pub pending: u64,
}

impl Counts {
    /// The counts in a report, as the service answers it.
    pub fn of(report: &Value) -> Self {
        let count = |name: &str| report[name].as_u64().unwrap_or_default();
        let failed = report["failed"].as_object().into_iter().flatten();
        Self {
            targeted: count("targeted"),
            sent: count("sent"),
            failed: failed.filter_map(|(n, count)| Some((n.clone(), count.as_u64()?))).collect(),
            expired: count("expired"),
            recalled: count("recalled"),
            pending: count("pending"),
        }
    }

    /// Devices that failed for this reason.
    pub fn failed(&self, reason: &str) -> u64 {
        self.failed.get(reason).copied().unwrap_or_default()
    }

    /// Devices that have an outcome.
    pub fn decided(&self) -> u64 {
        self.sent + self.failed.values().sum::<u64>() + self.expired + self.recalled
    }
}

/// [`Rule::Equation`], at one instant.
pub fn equation(counts: &Counts) -> Option<Violation> {
    let holds = counts.targeted == counts.decided() + counts.pending;
    (!holds).then(|| Violation::new(Rule::Equation, format!("{counts:?}")))
}

/// [`Rule::CountsGoBack`]: two states of the counts of one message, of an index that lost no writes
/// in between.
pub fn never_back(before: &Counts, after: &Counts) -> Option<Violation> {
    let failed = before.failed.iter().all(|(reason, count)| after.failed(reason) >= *count);
    let grown = failed
        && after.targeted >= before.targeted
        && after.sent >= before.sent
        && after.expired >= before.expired
        && after.recalled >= before.recalled;
    (!grown).then(|| Violation::new(Rule::CountsGoBack, format!("{before:?}, then {after:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_a_report_and_never_go_back() {
        let report = serde_json::json!({
            "targeted": 5, "sent": 1, "failed": {"gone": 2}, "expired": 0, "recalled": 1,
            "pending": 1
        });
        let counts = Counts::of(&report);
        assert_eq!((counts.decided(), counts.failed("gone")), (4, 2));
        assert_eq!(equation(&counts), None);
        assert!(equation(&Counts { targeted: 6, ..counts.clone() }).is_some());
        assert_eq!(never_back(&Counts::default(), &counts), None);
        assert!(never_back(&counts, &Counts::default()).is_some());
    }
}
