//! The counters of spans, by their fate.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// The fate of a span that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The collector took it.
    Exported,
    /// The queue was full.
    Dropped,
    /// The collector could not be reached, or did not take it.
    Failed,
}

impl Fate {
    fn name(self) -> &'static str {
        match self {
            Self::Exported => "exported",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// The counters of spans.
#[derive(Debug, Clone)]
pub(super) struct SpanCounts {
    ended: Arc<AtomicU64>,
    by_fate: Family<Labels, Counter>,
}

impl Default for SpanCounts {
    fn default() -> Self {
        let counts = Self { ended: Arc::default(), by_fate: Family::default() };
        // Published from the start, so that an increase of each can be seen.
        for fate in [Fate::Exported, Fate::Dropped, Fate::Failed] {
            counts.add(fate, 0);
        }
        counts
    }
}

impl SpanCounts {
    pub(super) fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add(&self, fate: Fate, spans: u64) {
        self.counter(fate).inc_by(spans);
    }

    /// Spans that have ended and of which it is not known what became.
    pub(super) fn not_sent(&self) -> u64 {
        let known = [Fate::Exported, Fate::Dropped, Fate::Failed];
        let known: u64 = known.map(|fate| self.counter(fate).get()).iter().sum();
        self.ended.load(Ordering::Relaxed).saturating_sub(known)
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Spans of traces: exported to the collector, dropped because too many waited, \
                    or failed because the collector did not take them";
        registry.register("push_trace_spans", help, self.by_fate.clone());
    }

    fn counter(&self, fate: Fate) -> Counter {
        self.by_fate.get_or_create_owned(&Labels { outcome: fate.name() })
    }
}
