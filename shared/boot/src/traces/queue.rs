//! The spans that have ended and are not sent yet: a bounded queue, into which a span is put
//! without waiting.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanProcessor},
};
use tokio::sync::mpsc;

use super::metrics::{Fate, SpanCounts};

/// Spans that wait at most; a span takes about 1 KiB.
pub(super) const QUEUE: usize = 4096;

/// The end of the queue where spans are put in.
#[derive(Debug)]
pub(super) struct SpanQueue {
    sender: mpsc::Sender<SpanData>,
    counts: SpanCounts,
}

impl SpanQueue {
    pub(super) fn new(sender: mpsc::Sender<SpanData>, counts: SpanCounts) -> Self {
        Self { sender, counts }
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.counts.ended();
        if self.sender.try_send(span).is_err() {
            self.counts.add(Fate::Dropped, 1);
        }
    }

    /// [`Traces::finish`](super::Traces::finish) sends the remaining spans.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}
