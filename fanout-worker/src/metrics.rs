//! What a worker counts: the name of every metric. Label values are the names that the ledger and
//! the logs use.

use std::sync::Arc;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use push_model::{
    ledger::{History, Outcomes},
    time::UnixMillis,
};
use push_queue::Lane;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DispositionLabel {
    /// The label's published name.
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EntryStateLabel {
    /// The label's published name.
    found: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabel {
    lane: &'static str,
}

/// The counters of one worker.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    devices: Family<OutcomeLabel, Counter>,
    runs: Family<DispositionLabel, Counter>,
    in_work: Family<LaneLabel, Gauge>,
    dead: Family<LaneLabel, Counter>,
    closing_checks: Family<EntryStateLabel, Counter>,
    batch_seconds: Histogram,
    ledger_bytes: Gauge,
    ledger_limit: Gauge,
    ledger_reach: Gauge,
    ledger_evicted: Gauge,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            devices: Family::default(),
            runs: Family::default(),
            in_work: Family::default(),
            dead: Family::default(),
            closing_checks: Family::default(),
            // 1 ms to 16 s
            batch_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            ledger_bytes: Gauge::default(),
            ledger_limit: Gauge::default(),
            ledger_reach: Gauge::default(),
            ledger_evicted: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics with a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("push_worker");
        let Families { devices, runs, in_work, dead, batch_seconds, .. } = &*self.0;
        registry.register("devices", "Devices with a final outcome, by outcome", devices.clone());
        registry.register("turns", "Runs on partitions, by what followed", runs.clone());
        registry.register("in_work", "Queue messages in work", in_work.clone());
        registry.register("dead_letters", "Messages put aside", dead.clone());
        registry.register_with_unit(
            "batch_delivery",
            "Time a batch of devices took to be sent",
            Unit::Seconds,
            batch_seconds.clone(),
        );
        let help = "Closing checks of broadcasts, by how they found the ledger entry";
        registry.register("closing_checks", help, self.0.closing_checks.clone());
        let Families { ledger_bytes, ledger_limit, ledger_reach, ledger_evicted, .. } = &*self.0;
        let mut bytes = |name, help, gauge: &Gauge| {
            registry.register_with_unit(name, help, Unit::Bytes, gauge.clone());
        };
        bytes("ledger", "What the ledger takes, estimated", ledger_bytes);
        bytes("ledger_limit", "What the ledger may take", ledger_limit);
        let help = "How far back the ledger reaches";
        registry.register_with_unit("ledger_reach", help, Unit::Seconds, ledger_reach.clone());
        let help = "Entries that were evicted to keep the ledger within its limit";
        registry.register("ledger_forgotten", help, ledger_evicted.clone());
    }

    /// Sets the gauges of the ledger.
    pub(crate) fn history(&self, history: &History, now: UnixMillis) {
        let shown = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let reach = history.oldest.map_or(0, |oldest| now.since(oldest).as_secs());
        self.0.ledger_bytes.set(shown(history.bytes));
        self.0.ledger_limit.set(shown(history.limit));
        self.0.ledger_reach.set(shown(reach));
        self.0.ledger_evicted.set(shown(history.evicted));
    }

    /// Counts devices whose outcomes the ledger has saved.
    pub(crate) fn committed(&self, outcomes: &Outcomes) {
        let add = |outcome, reason, n| {
            if n > 0 {
                self.0.devices.get_or_create(&OutcomeLabel { outcome, reason }).inc_by(n);
            }
        };
        add("sent", "", outcomes.sent);
        add("expired", "", outcomes.expired);
        add("recalled", "", outcomes.recalled);
        for (reason, &n) in &outcomes.failed {
            add("failed", reason.name(), n);
        }
    }

    /// Counts runs by the name of the disposition that followed.
    pub(crate) fn runs(&self, disposition: &'static str, count: u64) {
        let label = DispositionLabel { verdict: disposition };
        self.0.runs.get_or_create(&label).inc_by(count);
    }

    /// Counts a closing check by the state in which it found the ledger entry.
    pub(crate) fn closing_check(&self, found: &'static str) {
        self.0.closing_checks.get_or_create(&EntryStateLabel { found }).inc();
    }

    pub(crate) fn dead_letter(&self, lane: Lane) {
        self.0.dead.get_or_create(&LaneLabel { lane: lane.name() }).inc();
    }

    pub(crate) fn batch_took(&self, time: std::time::Duration) {
        self.0.batch_seconds.observe(time.as_secs_f64());
    }

    /// Counts a message as in work until the guard is dropped.
    pub(crate) fn in_work(&self, lane: Lane) -> InWorkGuard {
        let gauge = self.0.in_work.get_or_create(&LaneLabel { lane: lane.name() }).clone();
        gauge.inc();
        InWorkGuard(gauge)
    }
}

/// Counts down when it is dropped, also by a panic or a cancellation.
#[derive(Debug)]
pub(crate) struct InWorkGuard(Gauge);

impl Drop for InWorkGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use push_model::ledger::FailReason;

    use super::*;

    #[test]
    fn metrics_are_named_with_their_units_and_labelled_in_the_ledgers_words() {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        let mut outcomes = Outcomes { sent: 2, ..Outcomes::default() };
        outcomes.fail(FailReason::UnknownClient);
        metrics.committed(&outcomes);
        drop(metrics.in_work(Lane::Tasks));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"push_worker_devices_total{outcome="sent",reason=""} 2"#,
            r#"push_worker_devices_total{outcome="failed",reason="unknown_client"} 1"#,
            r#"push_worker_in_work{lane="tasks"} 0"#,
            "push_worker_batch_delivery_seconds_count 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
