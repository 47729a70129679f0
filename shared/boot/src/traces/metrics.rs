//! The counters of spans, by their fate.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use prometheus_client::{metrics::counter::Counter, registry::Registry};

use crate::metrics::ByLabel;

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
    const ALL: [Self; 3] = [Self::Exported, Self::Dropped, Self::Failed];

    fn name(self) -> &'static str {
        match self {
            Self::Exported => "exported",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

/// The counters of spans.
#[derive(Debug, Clone)]
pub(super) struct SpanCounts {
    ended: Arc<AtomicU64>,
    by_fate: ByLabel<Counter>,
}

impl Default for SpanCounts {
    fn default() -> Self {
        let by_fate = ByLabel::new("outcome", Fate::ALL.map(Fate::name), Counter::default);
        Self { ended: Arc::default(), by_fate }
    }
}

impl SpanCounts {
    pub(super) fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add(&self, fate: Fate, spans: u64) {
        self.by_fate.of(fate.name()).inc_by(spans);
    }

    /// Spans that have ended and of which it is not known what became.
    pub(super) fn not_sent(&self) -> u64 {
        let known: u64 = Fate::ALL.map(|fate| self.by_fate.of(fate.name()).get()).iter().sum();
        self.ended.load(Ordering::Relaxed).saturating_sub(known)
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Spans of traces: exported to the collector, dropped because too many waited, \
                    or failed because the collector did not take them";
        registry.register("push_trace_spans", help, self.by_fate.family());
    }
}
