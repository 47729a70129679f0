//! The metrics of ingest. All names are here, with their units in them.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::route::Route;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    call: &'static str,
    status: u32,
}

/// The metrics of one ingest.
#[derive(Debug)]
pub struct Metrics {
    answers: Family<Answer, Counter>,
    /// The counter of accepted pushes, which nearly every request increments. It is looked up in
    /// `answers` once.
    pushed: Counter,
    batches: Counter,
    failed_batches: Counter,
    batch_pushes: Histogram,
    publish_seconds: Histogram,
    queue_blocked: Gauge,
    connections: Gauge,
    pub(crate) turned_away: Counter,
    pub(crate) evicted: Counter,
    pub(crate) failed_logins: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let answers = Family::<Answer, Counter>::default();
        let pushed = answers.get_or_create_owned(&Answer { call: Route::PUSH, status: 200 });
        Self {
            answers,
            pushed,
            batches: Counter::default(),
            failed_batches: Counter::default(),
            batch_pushes: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            publish_seconds: Histogram::new(exponential_buckets(0.000_25, 2.0, 16)),
            queue_blocked: Gauge::default(),
            connections: Gauge::default(),
            turned_away: Counter::default(),
            evicted: Counter::default(),
            failed_logins: Counter::default(),
        }
    }
}

impl Metrics {
    /// Adds the metrics to those that the service publishes.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("push_ingest");
        registry.register("answers", "Answers, by call and status", self.answers.clone());
        registry.register("batches", "Messages sent to the queue", self.batches.clone());
        registry.register(
            "failed_batches",
            "Messages that the queue did not confirm",
            self.failed_batches.clone(),
        );
        registry.register("batch_pushes", "Pushes in a message", self.batch_pushes.clone());
        registry.register(
            "publish_seconds",
            "From sending a message to its confirm",
            self.publish_seconds.clone(),
        );
        registry.register(
            "queue_blocked",
            "1 while the queue's server announces that it takes no messages, else 0",
            self.queue_blocked.clone(),
        );
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "turned_away",
            "Connections refused because the service or their address had too many",
            self.turned_away.clone(),
        );
        registry.register(
            "evicted",
            "Idle connections closed to make room for others",
            self.evicted.clone(),
        );
        registry.register(
            "failed_logins",
            "Requests with a wrong secret",
            self.failed_logins.clone(),
        );
    }

    /// Counts a connection as open until the guard is dropped.
    pub(crate) fn open_connection(self: &Arc<Self>) -> OpenConnection {
        self.connections.inc();
        OpenConnection(Arc::clone(self))
    }

    pub(crate) fn pushed(&self) {
        self.pushed.inc();
    }

    /// Counts the answers to pushes that came in a request with many pushes.
    pub(crate) fn answered_lines(&self, status: u32, lines: usize) {
        let answer = Answer { call: Route::BATCH_LINE, status };
        self.answers.get_or_create(&answer).inc_by(u64::try_from(lines).unwrap_or(u64::MAX));
    }

    pub(crate) fn answered(&self, call: &'static str, status: u32) {
        self.answers.get_or_create(&Answer { call, status }).inc();
    }

    pub(crate) fn queue_blocked(&self, blocked: bool) {
        self.queue_blocked.set(blocked.into());
    }

    pub(crate) fn batch(&self, pushes: usize, took: Duration, confirmed: bool) {
        self.batches.inc();
        if !confirmed {
            self.failed_batches.inc();
        }
        // `--batch-jobs` is at most 65,536, which a float holds exactly.
        self.batch_pushes.observe(f64::from(u32::try_from(pushes).unwrap_or(u32::MAX)));
        self.publish_seconds.observe(took.as_secs_f64());
    }
}

/// Counts a connection as open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<Metrics>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}
