//! What a worker counts. One place for every name; labels come from the vocabulary's own names,
//! so that metrics, logs and the ledger say the same words.

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

use crate::intake::Disposition;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabel {
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FoundLabel {
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
    turns: Family<VerdictLabel, Counter>,
    in_work: Family<LaneLabel, Gauge>,
    dead: Family<LaneLabel, Counter>,
    closing_checks: Family<FoundLabel, Counter>,
    batch_seconds: Histogram,
    ledger_bytes: Gauge,
    ledger_limit: Gauge,
    ledger_reach: Gauge,
    ledger_forgotten: Gauge,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            devices: Family::default(),
            turns: Family::default(),
            in_work: Family::default(),
            dead: Family::default(),
            closing_checks: Family::default(),
            // 1 ms to 16 s
            batch_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            ledger_bytes: Gauge::default(),
            ledger_limit: Gauge::default(),
            ledger_reach: Gauge::default(),
            ledger_forgotten: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Makes the counters known to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("push_worker");
        let Families { devices, turns, in_work, dead, batch_seconds, .. } = &*self.0;
        registry.register("devices", "Devices settled, by outcome", devices.clone());
        registry.register("turns", "Turns on strands, by what followed", turns.clone());
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
        let Families { ledger_bytes, ledger_limit, ledger_reach, ledger_forgotten, .. } = &*self.0;
        let mut bytes = |name, help, gauge: &Gauge| {
            registry.register_with_unit(name, help, Unit::Bytes, gauge.clone());
        };
        bytes("ledger", "What the ledger takes, estimated", ledger_bytes);
        bytes("ledger_limit", "What the ledger may take", ledger_limit);
        let help = "How far back the ledger reaches";
        registry.register_with_unit("ledger_reach", help, Unit::Seconds, ledger_reach.clone());
        let help = "Entries that were forgotten to keep the ledger within its limit";
        registry.register("ledger_forgotten", help, ledger_forgotten.clone());
    }

    /// Shows what the ledger holds.
    pub(crate) fn history(&self, history: &History, now: UnixMillis) {
        let shown = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let reach = history.oldest.map_or(0, |oldest| now.since(oldest).as_secs());
        self.0.ledger_bytes.set(shown(history.bytes));
        self.0.ledger_limit.set(shown(history.limit));
        self.0.ledger_reach.set(shown(reach));
        self.0.ledger_forgotten.set(shown(history.forgotten));
    }

    pub(crate) fn settled(&self, outcomes: &Outcomes) {
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

    /// Counts so many runs after which this followed.
    pub(crate) fn runs(&self, disposition: &Disposition, count: u64) {
        let label = VerdictLabel { verdict: disposition.name() };
        self.0.turns.get_or_create(&label).inc_by(count);
    }

    /// Counts a closing check: `found` is how the ledger entry of its broadcast is.
    pub(crate) fn closing_check(&self, found: &'static str) {
        self.0.closing_checks.get_or_create(&FoundLabel { found }).inc();
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
        metrics.settled(&outcomes);
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
