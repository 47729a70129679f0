//! Devices that were given up, by transport and reason, and all counters that the worker's record in the
//! index is made of. They are read every few seconds, so counting takes no lock.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use push_model::{components::WorkerCount, device::TransportKind, ledger::FailReason};

use super::Metrics;

/// The reasons for which a device is given up before a transport is asked.
const BEFORE_TRANSPORTS: [FailReason; 3] =
    [FailReason::UnknownClient, FailReason::Unrecorded, FailReason::Unreadable];

/// Failures of a batch, by transport and reason.
pub(crate) type FailedByTransport = BTreeMap<(TransportKind, FailReason), u64>;

/// Failures since the start, by transport and reason.
#[derive(Debug)]
pub(super) struct TransportFailures(BTreeMap<(TransportKind, FailReason), AtomicU64>);

impl Default for TransportFailures {
    fn default() -> Self {
        let of_kind = |kind| FailReason::ALL.map(|reason| ((kind, reason), AtomicU64::new(0)));
        Self(TransportKind::ALL.into_iter().flat_map(of_kind).collect())
    }
}

impl TransportFailures {
    pub(super) fn add(&self, failed: &FailedByTransport) {
        for (key, devices) in failed {
            if let Some(counter) = self.0.get(key) {
                counter.fetch_add(*devices, Ordering::Relaxed);
            }
        }
    }
}

impl Metrics {
    /// The devices that were sent to or given up since the start.
    pub fn counts(&self) -> BTreeMap<WorkerCount, u64> {
        let sent = self.0.transports.sent().map(|(kind, sent)| (WorkerCount::Sent(kind), sent));
        let failed = self.0.failures.0.iter().map(|((kind, reason), devices)| {
            (WorkerCount::Failed(Some(*kind), *reason), devices.load(Ordering::Relaxed))
        });
        let before = BEFORE_TRANSPORTS
            .map(|reason| (WorkerCount::Failed(None, reason), self.0.devices.failed(reason)));
        sent.chain(failed).chain(before).filter(|(_, devices)| *devices > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use push_model::ledger::{Counts, Outcomes};
    use push_transports::Outcome;

    use super::*;

    #[test]
    fn devices_are_counted_by_transport_and_those_that_no_transport_was_asked_for_by_reason() {
        let metrics = Metrics::default();
        assert_eq!(metrics.counts(), BTreeMap::new());
        metrics.0.transports.add([(TransportKind::Fcm, Outcome::Sent)].into_iter());
        let exhausted = (TransportKind::Fcm, FailReason::RetriesExhausted);
        metrics.failed(&[(exhausted, 2)].into());
        let mut outcomes = Outcomes { sent: 1, ..Outcomes::default() };
        outcomes.fail(FailReason::UnknownClient);
        outcomes.fail(FailReason::RetriesExhausted);
        let counts = Counts { targeted: 4, outcomes, ..Counts::default() };
        metrics.committed(&"a".parse().unwrap(), &counts);
        assert_eq!(
            metrics.counts(),
            [
                (WorkerCount::Sent(TransportKind::Fcm), 1),
                (WorkerCount::Failed(None, FailReason::UnknownClient), 1),
                (WorkerCount::Failed(Some(exhausted.0), exhausted.1), 2),
            ]
            .into()
        );
    }
}
