//! The task that sends spans to the collector, in batches.
//!
//! Failures: a collector that does not answer within [`SEND_TIME`] costs one batch, which is counted as
//! failed and not sent again. Meanwhile spans wait in the queue, and those that find it full are dropped.
//! Failures of the collector are logged at most once in [`LOG_PAUSE`], even if it fails only now and then.

use std::{mem, time::Duration};

use opentelemetry_proto::{
    tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    transform::{
        common::tonic::ResourceAttributesWithSchema,
        trace::tonic::group_spans_by_resource_and_scope,
    },
};
use opentelemetry_sdk::trace::SpanData;
use prost::Message as _;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    collector::{Collector, CollectorError},
    metrics::{Fate, SpanCounts},
};

/// Spans of one request to the collector, at most.
const BATCH: usize = 512;
/// The time for which spans are gathered for one request.
const GATHER_TIME: Duration = Duration::from_secs(1);
/// The time that the collector has for one request.
const SEND_TIME: Duration = Duration::from_secs(5);
/// The time that a process that stops has to send the last spans.
pub(super) const FLUSH_TIME: Duration = Duration::from_secs(3);
/// The shortest time between two log lines about a collector that does not take spans.
const LOG_PAUSE: Duration = Duration::from_mins(1);

/// The task that sends spans.
#[derive(Debug)]
pub(super) struct Exporter {
    spans: mpsc::Receiver<SpanData>,
    collector: Collector,
    resource: ResourceAttributesWithSchema,
    counts: SpanCounts,
    failures: FailureLog,
}

impl Exporter {
    pub(super) fn new(
        spans: mpsc::Receiver<SpanData>,
        collector: Collector,
        resource: ResourceAttributesWithSchema,
        counts: SpanCounts,
    ) -> Self {
        Self { spans, collector, resource, counts, failures: FailureLog::default() }
    }

    /// Sends spans until `stop`, and then those that have ended by that time.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        let (mut due, mut stopping) = (Instant::now(), false);
        loop {
            let (before, room) = (batch.len(), BATCH - batch.len());
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.spans.close();
                }
                () = sleep_until(due), if before > 0 => self.export(&mut batch).await,
                received = self.spans.recv_many(&mut batch, room) => {
                    if received == 0 {
                        break;
                    }
                    if before == 0 {
                        due = Instant::now() + GATHER_TIME;
                    }
                    if batch.len() == BATCH {
                        self.export(&mut batch).await;
                    }
                }
            }
        }
        self.export(&mut batch).await;
    }

    /// Sends a batch, and empties it.
    async fn export(&mut self, batch: &mut Vec<SpanData>) {
        if batch.is_empty() {
            return;
        }
        let spans = batch.len() as u64;
        let resource_spans = group_spans_by_resource_and_scope(mem::take(batch), &self.resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let answer = timeout(SEND_TIME, self.collector.send(body.into())).await;
        let answer = answer.unwrap_or(Err(CollectorError::Late(SEND_TIME)));
        let taken = answer.and_then(|answer| {
            // An answer that cannot be read names no refused spans.
            let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
            let partly = answer.partial_success.unwrap_or_default();
            match u64::try_from(partly.rejected_spans).unwrap_or_default() {
                0 => Ok(()),
                rejected => Err(CollectorError::Rejected { rejected, why: partly.error_message }),
            }
        });
        let failed = match &taken {
            Ok(()) => 0,
            Err(CollectorError::Rejected { rejected, .. }) => spans.min(*rejected),
            Err(_) => spans,
        };
        self.counts.add(Fate::Exported, spans - failed);
        self.counts.add(Fate::Failed, failed);
        self.failures.note(&self.collector, taken, failed);
    }
}

/// Logs that the collector fails, and when it works again.
#[derive(Debug, Default)]
struct FailureLog {
    /// The time of the last log line about a failure.
    logged_at: Option<Instant>,
    /// True if the last log line says that it fails.
    fails: bool,
    /// Spans that were lost and not logged yet.
    lost: u64,
}

impl FailureLog {
    fn note(&mut self, collector: &Collector, result: Result<(), CollectorError>, lost: u64) {
        self.lost += lost;
        if !self.is_news(result.is_err(), Instant::now()) {
            return;
        }
        let lost = mem::take(&mut self.lost);
        match result {
            Ok(()) => info!(%collector, lost, "the collector takes spans again"),
            Err(error) => {
                let error: &(dyn std::error::Error + 'static) = &error;
                warn!(
                    runbook = "traces-do-not-arrive",
                    %collector,
                    lost,
                    error,
                    "the collector does not take spans"
                );
            }
        }
    }

    /// Returns true if the log should say that the collector fails, or that it works again.
    fn is_news(&mut self, fails: bool, now: Instant) -> bool {
        if !fails {
            return mem::take(&mut self.fails);
        }
        let is_due = self.logged_at.is_none_or(|at| now.saturating_duration_since(at) >= LOG_PAUSE);
        if is_due {
            (self.logged_at, self.fails) = (Some(now), true);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_fails_now_and_then_is_logged_twice_a_minute_at_most() {
        let (mut log, start) = (FailureLog::default(), Instant::now());
        let news = (0..600).filter(|&second| {
            let now = start + Duration::from_secs(second);
            log.is_news(second % 2 == 0, now)
        });
        assert_eq!(news.count(), 20, "that it fails, and that it does no more");
        assert!(log.is_news(true, start + Duration::from_secs(600)));
    }
}
