//! Levels: the resources that the service holds at a moment, beside their bounds. They are read when they are published:
//! a gauge would have to be kept in step with what it shows, at the cost of every push.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};
use tokio::sync::watch;

/// A number that changes, and its limit.
pub(crate) struct Level {
    read: Box<dyn Fn() -> usize + Send + Sync>,
    limit: usize,
}

impl Level {
    /// Makes a level from the value that `read` returns and its bound.
    pub(crate) fn new(limit: usize, read: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        Self { read: Box::new(read), limit }
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Level").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Set by the parts of the service that have something to show, once each.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    /// Pushes that wait for their envelope.
    pub(crate) waiting_pushes: OnceLock<Level>,
    /// The reason why the queue takes nothing, while it does.
    pub(crate) queue_blocked: OnceLock<watch::Receiver<Option<Arc<str>>>>,
    /// Memory for request bodies.
    pub(crate) body_memory: OnceLock<Level>,
    pub(crate) cached_apps: OnceLock<Level>,
}

/// Publishes the levels that are set.
#[derive(Debug)]
pub(super) struct LevelCollector(pub(super) Arc<Levels>);

impl Collector for LevelCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(levels) = self;
        let all = [
            (&levels.waiting_pushes, WAITING_PUSHES),
            (&levels.body_memory, BODY_MEMORY),
            (&levels.cached_apps, CACHED_APPS),
        ];
        for (level, [(name, help), (limit_name, limit_help)]) in all {
            let Some(level) = level.get() else { continue };
            gauge(&mut encoder, name, help, (level.read)())?;
            gauge(&mut encoder, limit_name, limit_help, level.limit)?;
        }
        if let Some(blocked) = levels.queue_blocked.get() {
            let (name, help) = QUEUE_BLOCKED;
            gauge(&mut encoder, name, help, blocked.borrow().is_some().into())?;
        }
        Ok(())
    }
}

/// Names and help texts of a number and its limit.
type Named = [(&'static str, &'static str); 2];

const WAITING_PUSHES: Named = [
    ("push_ingest_waiting_pushes", "Pushes that wait for their message to the queue"),
    ("push_ingest_waiting_pushes_limit", "Pushes that may wait for their message to the queue"),
];
const BODY_MEMORY: Named = [
    ("push_ingest_body_memory_bytes", "Memory of request bodies and of pushes until their confirm"),
    ("push_ingest_body_memory_limit_bytes", "Memory that they may use"),
];
const CACHED_APPS: Named = [
    ("push_ingest_cached_apps", "Apps whose record is cached"),
    ("push_ingest_cached_apps_limit", "Apps whose record may be cached"),
];
const QUEUE_BLOCKED: (&str, &str) = (
    "push_ingest_queue_blocked",
    "1 while the queue's server announces that it takes no messages, else 0",
);

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: usize) -> fmt::Result {
    let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder)
}
