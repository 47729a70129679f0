//! What providers answered, by kind and code, for metrics; and a line in the log for what the operator must
//! see, at most one in a while.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use push_providers::verdict::{AccountFault, Verdict};
use tokio::time::Instant;

/// The time between two lines about the same code.
const QUIET: Duration = Duration::from_secs(60);

/// The answers of one provider.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<BTreeMap<(&'static str, &'static str), Count>>);

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    number: u64,
    said_at: Option<Instant>,
}

impl Counts {
    /// Counts a verdict. Returns true if its code was not reported for a while.
    pub(super) fn note(&self, verdict: &Verdict) -> bool {
        self.add(labels(verdict))
    }

    /// Counts a request that was not sent, because its server may not be reached. Returns the same.
    pub(super) fn note_forbidden(&self) -> bool {
        self.add(("not_sent", "forbidden_address"))
    }

    fn add(&self, labels: (&'static str, &'static str)) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(labels).or_default();
        count.number += 1;
        let now = Instant::now();
        let is_quiet = count.said_at.is_none_or(|at| now >= at + QUIET);
        if is_quiet {
            count.said_at = Some(now);
        }
        is_quiet
    }

    /// Returns the verdicts, their codes and their numbers.
    pub(super) fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|((verdict, code), count)| (*verdict, *code, count.number)).collect()
    }
}

fn labels(verdict: &Verdict) -> (&'static str, &'static str) {
    match *verdict {
        Verdict::Sent => ("sent", ""),
        Verdict::Gone { code, .. } => ("gone", code),
        Verdict::DeviceRefused { code, .. } => ("device_refused", code),
        Verdict::MessageRefused { code } => ("message_refused", code),
        Verdict::Throttled { .. } => ("throttled", ""),
        Verdict::Account(
            AccountFault::Renew { code }
            | AccountFault::Stop { code }
            | AccountFault::Suspect { code },
        ) => ("account", code),
        Verdict::Account(AccountFault::Unavailable { .. }) => ("account", "unavailable"),
        Verdict::Reconnect => ("reconnect", ""),
        Verdict::Unavailable { .. } => ("unavailable", ""),
    }
}
