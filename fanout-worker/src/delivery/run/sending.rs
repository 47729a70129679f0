//! The life of a batch: read from the index, granted by the app's pace, and sent.

use push_model::{
    ledger::{Checkpoint, Leftover, RECALL_CHECK},
    time::UnixMillis,
};
use tokio::time::Instant;
use tracing::Span;

use super::ActiveRun;
use crate::{
    control::pace::Allowance,
    delivery::{
        batch::Batch,
        claim::OwnedPartition,
        classification::{PriorAttempts, RetryRules, classify},
        leftovers::{self, NextAction},
        run_end::RunEnd,
    },
    spans,
    transport::Outgoing,
};

/// How often the index is asked whether a message is recalled if each answer comes too late, before
/// the partition is put off.
const RECALL_CHECKS: u32 = 3;

/// A batch that is ready to be sent, and what the partition becomes with it.
struct PreparedBatch {
    batch: Batch,
    prior: PriorAttempts,
    /// If the batch is taken from the leftovers: the other leftovers.
    others: Option<Vec<Leftover>>,
}

impl ActiveRun<'_> {
    /// Sends the next batch, if it may be sent. `span` is that of the batch.
    pub(super) async fn send_next(
        &mut self,
        outgoing: &Outgoing,
        allowance: &mut Allowance,
        deadline: UnixMillis,
        span: &Span,
    ) -> Result<(), RunEnd> {
        let context = self.run.context;
        let most = allowance.most(context.run.batch);
        let prepared = self.next_batch(most).await?;
        let devices = prepared.batch.targets.len();
        spans::note_devices(span, devices);
        let (app, hold) = (&self.run.job.app(), self.run.hold);
        let engines = (&*context.index, &context.clock);
        let granted = context.now() <= deadline
            && allowance.acquire(app, devices, engines, &context.retrier, hold).await?;
        // `is_fresh`: as of just now, this worker owns the partition and the message is not
        // recalled.
        if !granted || !self.is_fresh().await? || context.now() > deadline {
            return Ok(());
        }
        let (started, handed_over_at) = (Instant::now(), context.now());
        let PreparedBatch { batch, prior, others } = prepared;
        let answers = context.transports.deliver(outgoing, &batch.targets, || context.now()).await;
        let (message, answered) = (self.run.message(), (&*batch.targets, &*answers));
        context.metrics.batch_sent(message, answered, started.elapsed(), context.now());
        let rules = RetryRules::now(context, deadline, handed_over_at);
        let result = classify(&batch.targets, answers, prior, &rules);
        if !span.is_disabled() {
            spans::note_outcomes(span, &result.counts(&batch).outcomes);
        }
        self.commit_batch(batch, others, result).await
    }

    /// The next batch: leftovers that are due, or devices that were not tried yet.
    async fn next_batch(&self, most: usize) -> Result<PreparedBatch, RunEnd> {
        let context = self.run.context;
        let OwnedPartition { state, leftovers, .. } = &self.owned;
        let at_end = state.checkpoint == Checkpoint::End;
        let backlog = context.retry_limits.backlog;
        match leftovers::next(leftovers, context.now(), at_end, backlog, most) {
            NextAction::WaitUntil(time) => Err(RunEnd::RetryDue(time)),
            NextAction::Read => {
                let source = self.run.source();
                let batch =
                    self.run.ask_unless_stopping(|| source.read(state.checkpoint, most)).await?;
                Ok(PreparedBatch { batch, prior: PriorAttempts::default(), others: None })
            }
            NextAction::Retry { index, devices } => {
                let mut others = leftovers.clone();
                let prior = others.get(index).map_or_else(PriorAttempts::default, |leftover| {
                    PriorAttempts { attempt: leftover.attempt, unanswered: leftover.unanswered }
                });
                let clients = leftovers::take(&mut others, index, devices);
                let source = self.run.source();
                let (targets, failed) =
                    self.run.ask_unless_stopping(|| source.find(&clients)).await?;
                let batch = Batch { targets, failed, next: state.checkpoint };
                Ok(PreparedBatch { batch, prior, others: Some(others) })
            }
        }
    }

    /// Whether the batch may be sent: the partition is unchanged and the message is not recalled.
    /// If that was last read more than [`RECALL_CHECK`] ago, the ledger is asked again.
    async fn is_fresh(&mut self) -> Result<bool, RunEnd> {
        for _ in 0..RECALL_CHECKS {
            if self.owned.checked_at.elapsed() <= RECALL_CHECK {
                return Ok(true);
            }
            let before = (self.owned.claim, self.owned.state);
            self.reclaim().await?;
            if self.owned.recalled || before != (self.owned.claim, self.owned.state) {
                return Ok(false);
            }
        }
        // Each answer took longer than `RECALL_CHECK`.
        Err(RunEnd::IndexUnavailable)
    }
}
