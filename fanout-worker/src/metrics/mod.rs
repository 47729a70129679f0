//! The metrics of a worker. Label values are the names that the ledger and the logs use;
//! `docs/reference/metrics.md` explains each metric.
//!
//! Every push to one device passes here, so it only uses handles that are made at the start
//! (`handles`); metrics in `families` are looked up once for each run or batch. A metric whose
//! label values are known beforehand has its series from the start, because Prometheus sees no
//! increase in a series that begins with its first count. `failures` is for the worker's record in the
//! index.

mod failures;
mod families;
mod handles;
mod last_estimate;
mod removals;

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use push_model::{
    app::AppKey,
    device::TransportKind,
    envelope::Head,
    ids::{AppId, AudienceKind},
    ledger::{Counts, History},
    time::UnixMillis,
};
use push_queue::WorkLane;

use self::families::Families;
pub(crate) use self::{failures::FailedByTransport, last_estimate::Estimate};
use push_transports::Outcome;

/// Default number of apps that have metrics of their own.
const DEFAULT_APPS: usize = 100;

/// The counters of one worker.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Families>);

impl Default for Metrics {
    fn default() -> Self {
        Self::new(DEFAULT_APPS)
    }
}

impl Metrics {
    /// The counters of a worker, where the first `apps` apps have their own.
    pub fn new(apps: usize) -> Self {
        Self(Arc::new(Families::new(apps)))
    }

    /// Registers the metrics with a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.0.broadcasts.clone()));
        registry.register_collector(Box::new(self.0.removals.stopped.clone()));
        self.0.register(registry.sub_registry_with_prefix("push_worker"));
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

    /// Shows how many apps have dictionaries that are nearly full.
    pub(crate) fn dictionaries_nearly_full(&self, apps: u64) {
        self.0.dictionaries_nearly_full.set(i64::try_from(apps).unwrap_or(i64::MAX));
    }

    /// Counts values that were freed because no device had them.
    pub(crate) fn dictionary_values_freed(&self, values: u64) {
        self.0.dictionary_values_freed.inc_by(values);
    }

    /// Shows the work that is left of all broadcasts; none if it could not be read.
    pub(crate) fn broadcasts(&self, estimate: Option<Estimate>) {
        self.0.broadcasts.set(estimate);
    }

    /// Counts the outcomes of an app's devices that the ledger has saved.
    pub(crate) fn committed(&self, app: &AppId, counts: &Counts) {
        self.0.devices.add(&counts.outcomes);
        self.0.retries.add(&counts.retried);
        if counts.outcomes.total() > 0 {
            self.0.apps.of(app).add(&counts.outcomes);
        }
    }

    /// Counts devices that were removed because their provider reported them as gone.
    pub(crate) fn gone_removed(&self, app: &AppKey, devices: u64) {
        self.0.removals.removed(app, devices);
    }

    /// Counts devices that were reported as gone and are kept, because removals of their app are stopped until
    /// this time.
    pub(crate) fn gone_kept(&self, app: &AppKey, devices: u64, until: UnixMillis) {
        self.0.removals.kept(app, devices, until);
    }

    /// Counts devices that the transports have answered for.
    pub(crate) fn answered(
        &self,
        (head, kind): (&Head, AudienceKind),
        answered: impl Iterator<Item = (TransportKind, Outcome)>,
        now: UnixMillis,
    ) {
        let sent = self.0.transports.add(answered);
        // A clock that is behind that of ingest makes this 0.
        let latency = now.since(head.accepted_at).as_secs_f64();
        self.0.latency.of(kind).observe_many(latency, sent);
    }

    /// Counts devices that were given up after their transports were asked.
    pub(crate) fn failed(&self, failed: &FailedByTransport) {
        self.0.failures.add(failed);
    }

    /// Counts a batch that was sent. A few of its devices may not be answered yet.
    pub(crate) fn batch_sent(&self, devices: usize, took: Duration) {
        // A batch has at most 100,000 devices, which a float holds exactly.
        self.0.batch_devices.observe(devices as f64);
        self.0.batch_seconds.observe_time(took);
    }

    /// Counts a request to the index for devices.
    pub(crate) fn targeted(&self, kind: AudienceKind, took: Duration) {
        self.0.targeting.of(kind).observe_time(took);
    }

    /// Counts the duration of a run that had claimed its partition.
    pub(crate) fn run_took(&self, time: Duration) {
        self.0.run_seconds.observe_time(time);
    }

    /// Counts runs by the name of their end.
    pub(crate) fn runs_ended(&self, end: &'static str, count: u64) {
        self.0.run_ends.of(end).inc_by(count);
    }

    /// Counts runs by the name of the disposition that followed.
    pub(crate) fn runs(&self, disposition: &'static str, count: u64) {
        self.0.dispositions.of(disposition).inc_by(count);
    }

    /// Counts a closing check by the state in which it found the ledger entry.
    pub(crate) fn closing_check(&self, found: &'static str) {
        self.0.closing_checks.of(found).inc();
    }

    /// Counts a copy of a message that is dropped because another one is sent.
    pub(crate) fn dropped_copy(&self, body: &'static str) {
        self.0.dropped_copies.of(body).inc();
    }

    pub(crate) fn dead_letter(&self, lane: WorkLane) {
        self.0.dead.of(lane.name()).inc();
    }

    /// Counts an envelope that is processed alone from now on.
    pub(crate) fn isolated(&self, lane: WorkLane) {
        self.0.isolated.of(lane.name()).inc();
    }

    /// The counters of requests that are made again: to the index, and to the queue.
    pub(crate) fn store_retries(&self) -> StoreRetries {
        let retries = &self.0.store_retries;
        StoreRetries { index: retries.of("index"), queue: retries.of("queue") }
    }

    /// Counts a message as in work until the guard is dropped.
    pub(crate) fn in_work(&self, lane: WorkLane) -> InWorkGuard {
        let gauge = self.0.in_work.of(lane.name());
        gauge.inc();
        InWorkGuard(gauge)
    }
}

/// Counts requests to the stores that are made again.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreRetries {
    pub(crate) index: Counter,
    pub(crate) queue: Counter,
}

/// Counts down when it is dropped, even by a panic or a cancellation.
#[derive(Debug)]
pub(crate) struct InWorkGuard(Gauge);

impl Drop for InWorkGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use push_model::{
        device::TransportKind,
        ids::MessageId,
        ledger::{FailReason, Outcomes, RetryReason},
    };

    use super::*;

    fn text(metrics: &Metrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    fn assert_has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn metrics_are_named_with_their_units_and_labelled_in_the_ledgers_words() {
        let metrics = Metrics::default();
        let mut outcomes = Outcomes { sent: 2, ..Outcomes::default() };
        outcomes.fail(FailReason::UnknownClient);
        let retried = [(RetryReason::Busy, 3)].into();
        metrics.committed(&"a".parse().unwrap(), &Counts { targeted: 3, outcomes, retried });
        drop(metrics.in_work(WorkLane::Tasks));
        let lines = [
            r#"push_worker_devices_total{outcome="sent",reason=""} 2"#,
            r#"push_worker_devices_total{outcome="failed",reason="unknown_client"} 1"#,
            r#"push_worker_devices_total{outcome="failed",reason="gone"} 0"#,
            r#"push_worker_app_devices_total{app="a",outcome="failed"} 1"#,
            r#"push_worker_retries_total{reason="busy"} 3"#,
            r#"push_worker_in_work{lane="tasks"} 0"#,
            r#"push_worker_runs_total{end="finished"} 0"#,
            "push_worker_batch_delivery_seconds_count 0",
            r#"push_worker_gone_devices_total{action="removed"} 0"#,
            r#"push_worker_gone_devices_total{action="kept"} 0"#,
            "push_worker_removals_stopped_apps 0.0",
        ];
        assert_has(&text(&metrics), &lines);
    }

    #[test]
    fn a_batch_is_counted_by_transport_and_each_device_that_was_sent_to_by_its_latency() {
        let metrics = Metrics::default();
        let app: AppId = "a".parse().unwrap();
        let head = Head {
            message_id: MessageId::issue_named(&app),
            app_id: app,
            accepted_at: UnixMillis(1_000),
            expires_at: UnixMillis(9_000),
        };
        let answered = [
            (TransportKind::Mqtt, Outcome::Sent),
            (TransportKind::Discard, Outcome::Sent),
            (TransportKind::Mqtt, Outcome::Undecided),
        ];
        let (took, now) = (Duration::from_millis(10), UnixMillis(3_000));
        let named = (&head, AudienceKind::Named);
        metrics.answered(named, answered.into_iter(), now);
        metrics.batch_sent(3, took);
        let lines = [
            r#"push_worker_transport_devices_total{transport="mqtt",outcome="sent"} 1"#,
            r#"push_worker_transport_devices_total{transport="mqtt",outcome="undecided"} 1"#,
            r#"push_worker_transport_devices_total{transport="discard",outcome="sent"} 1"#,
            r#"push_worker_accepted_to_sent_seconds_sum{audience="named"} 4.0"#,
            r#"push_worker_accepted_to_sent_seconds_count{audience="named"} 2"#,
            "push_worker_batch_devices_sum 3.0",
        ];
        assert_has(&text(&metrics), &lines);
    }
}
