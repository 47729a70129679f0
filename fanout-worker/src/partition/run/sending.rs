//! The life of a batch: read from the index, granted by the app's pace, sent, and waited for.

use std::{
    future::pending,
    pin::{Pin, pin},
    time::Duration,
};

use futures::future::Either;
use push_model::{
    device::Target,
    ledger::{Checkpoint, Claim, Leftover, PartitionState, RECALL_CHECK},
    time::UnixMillis,
};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::Span;

use super::{
    ActiveRun,
    open_batches::{Answered, BatchKey},
};
use crate::{
    control::{hold::Hold, pace::Allowance},
    partition::{
        batch::Batch,
        claim::OwnedPartition,
        classification::{BatchResult, PriorAttempts, RetryRules, classify},
        leftovers::{self, NextAction},
        run_end::RunEnd,
    },
    spans,
};
use push_transports::{FEW, Outcome, few_of};

/// The most times that the index is asked whether a message is recalled, if each answer comes too
/// late. Then the partition is put off.
const RECALL_CHECKS: u32 = 3;

/// Once few devices of a batch are open, the run waits for them a fraction (one in this many) of
/// the time that the batch took so far, so that devices that answer a little late are settled with
/// the others.
const GRACE: u32 = 8;
const LEAST_GRACE: Duration = Duration::from_millis(10);

/// After this time the run goes on as soon as no more than [`FEW`] devices are open, however small
/// the batch is.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which the answers of a tail are saved while a run waits for it.
const TAIL_SAVED_EVERY: Duration = Duration::from_secs(1);

/// Time for which a stopping worker waits for the answers of devices that were written to.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// A batch that is ready to be sent.
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
        // `is_fresh`: a moment ago, this worker owned the partition and the message was not
        // recalled.
        if !granted || !self.is_fresh().await? || context.now() > deadline {
            return Ok(());
        }
        let started = Instant::now();
        let PreparedBatch { mut batch, prior, others } = prepared;
        let targets = std::mem::take(&mut batch.targets);
        let permission = self.permission.clone();
        let key = self.open.begin(
            &context.transports,
            &self.outgoing,
            targets,
            prior,
            (&permission, self.run.lane),
        );
        if !self.wait_for(key, devices, prior.unanswered > 0).await? {
            // The ledger has the partition in another state than the one before the batch.
            self.open.clear();
            return Ok(());
        }
        context.metrics.batch_sent(devices, started.elapsed());
        let answered = self.open.take_answered(key);
        let rules = RetryRules::now(context, deadline, answered.handed_over_at);
        let mut result = self.classify(answered, &rules);
        batch.handed_over = devices as u64;
        if self.open.leave_open(key, &rules) > 0 {
            result.not_sent = None;
        }
        if !span.is_disabled() {
            spans::note_outcomes(span, &result.counts(&batch).outcomes);
        }
        self.commit_batch(batch, others, result).await
    }

    /// Classifies devices that were answered, and counts them in the metrics.
    fn classify(&mut self, answered: Answered, rules: &RetryRules) -> BatchResult {
        let context = self.run.context;
        let Answered { devices, prior, .. } = answered;
        let each = devices.iter().map(|(target, outcome)| (target.transport, *outcome));
        context.metrics.answered(self.run.message(), each, context.now());
        let again = |(_, outcome): &&(Target, Outcome)| {
            matches!(outcome, Outcome::Later(..) | Outcome::Undecided | Outcome::NotSent)
        };
        let first = devices.iter().find(again).map(|(target, _)| target.transport);
        self.waits_for = first.or(self.waits_for);
        let (targets, outcomes): (Vec<&Target>, Vec<Outcome>) =
            devices.iter().map(|(target, outcome)| (target, *outcome)).unzip();
        let result = classify(targets, outcomes, prior, rules);
        context.metrics.failed(&result.failed);
        result
    }

    /// Waits until every device of a batch is answered, or all but a few. Returns false if the
    /// partition is in another state than before.
    async fn wait_for(
        &mut self,
        key: BatchKey,
        devices: usize,
        is_retried: bool,
    ) -> Result<bool, RunEnd> {
        let Some(answers) = self.open.answers(key) else { return Ok(true) };
        let started = Instant::now();
        // Devices that did not answer before are not expected to answer now.
        let patience = if is_retried { LEAST_GRACE } else { PATIENCE };
        let few = few_of(devices);
        let nearly_complete = async move {
            let in_time = async {
                answers.missing_at_most(few).await;
                sleep((started.elapsed() / GRACE).max(LEAST_GRACE)).await;
            };
            if timeout(patience, in_time).await.is_err() {
                answers.missing_at_most(FEW).await;
            }
        };
        let stopped = stopped_for(self.run.hold, STOP_PATIENCE);
        tokio::pin!(nearly_complete, stopped);
        let mut is_nearly_complete = false;
        loop {
            if is_nearly_complete && self.open.has_room_for(key) {
                return Ok(true);
            }
            tokio::select! {
                biased;
                ended = self.open.progress() => if ended == key {
                    return Ok(true);
                },
                () = &mut nearly_complete, if !is_nearly_complete => is_nearly_complete = true,
                () = &mut stopped => return Ok(true),
                () = at(self.renews_at) => if !self.renew_claim().await? {
                    return Ok(false);
                },
                () = self.permission.wanted() => if !self.renew_permission().await? {
                    return Ok(false);
                },
            }
        }
    }

    /// Reads the ledger again, because a transport has more to write. Returns false if the
    /// partition is in another state than before.
    async fn renew_permission(&mut self) -> Result<bool, RunEnd> {
        let before = (self.owned.claim, self.owned.state);
        let asked = self.reclaim(None).await;
        self.goes_on(asked, before)
    }

    /// Decides after a request to the ledger whether the run goes on with its open batches: the
    /// partition must be in this state.
    pub(super) fn goes_on(
        &self,
        asked: Result<(), RunEnd>,
        expected: (Claim, PartitionState),
    ) -> Result<bool, RunEnd> {
        match asked {
            Ok(()) => Ok(expected == (self.owned.claim, self.owned.state)),
            // Devices that were written to are waited for, and saved as far as that is possible.
            Err(RunEnd::StoreUnavailable | RunEnd::Interrupted | RunEnd::Broken(_)) => {
                self.permission.withdraw();
                Ok(true)
            }
            Err(end) => Err(end),
        }
    }

    /// Saves the answers of the tail.
    pub(super) async fn settle_tail(&mut self, deadline: UnixMillis) -> Result<(), RunEnd> {
        let answered = self.open.take_answered_tail();
        if answered.is_empty() {
            return Ok(());
        }
        let mut all = BatchResult::default();
        for answered in answered {
            let rules = RetryRules::now(self.run.context, deadline, answered.handed_over_at);
            let BatchResult { outcomes, retried, leftovers, gone, .. } =
                self.classify(answered, &rules);
            all.outcomes.add(&outcomes);
            for (reason, count) in retried {
                *all.retried.entry(reason).or_default() += count;
            }
            leftovers.into_iter().for_each(|more| leftovers::add(&mut all.leftovers, more));
            all.gone.extend(gone);
        }
        let batch = Batch::none(self.owned.state.checkpoint);
        self.commit_results(batch, Some(self.owned.leftovers.clone()), all).await
    }

    /// Waits for the tail, and saves its answers. A stopping worker waits for [`STOP_PATIENCE`]
    /// only; devices without an answer by then stay among the leftovers.
    pub(super) async fn finish_tail(
        &mut self,
        deadline: UnixMillis,
        patience: Option<Duration>,
    ) -> Result<(), RunEnd> {
        let hold = self.run.hold;
        let mut over = pin!(async move {
            let patience =
                patience.map_or(Either::Left(pending()), |time| Either::Right(sleep(time)));
            tokio::select! {
                () = stopped_for(hold, STOP_PATIENCE) => {}
                () = patience => {}
            }
        });
        self.settle_tail(deadline).await?;
        while !self.open.is_empty() && !self.await_tail(over.as_mut()).await? {
            self.settle_tail(deadline).await?;
        }
        // Devices of a batch that is still open may be answered already.
        self.settle_tail(deadline).await
    }

    /// Waits until a device of the tail may be answered, or `over` ends. Returns true if `over`
    /// ended.
    pub(super) async fn await_tail(
        &mut self,
        over: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<bool, RunEnd> {
        tokio::select! {
            biased;
            _ = self.open.progress() => {}
            () = over => return Ok(true),
            () = at(self.renews_at) => if !self.renew_claim().await? {
                self.open.clear();
            },
            () = self.permission.wanted() => if !self.renew_permission().await? {
                self.open.clear();
            },
            // Some devices of a batch may be answered long before the batch ends.
            () = sleep(TAIL_SAVED_EVERY) => {}
        }
        Ok(false)
    }

    /// Prepares the next batch: leftovers that are due, or devices that were not tried yet.
    async fn next_batch(&mut self, most: usize) -> Result<PreparedBatch, RunEnd> {
        let context = self.run.context;
        let OwnedPartition { state, leftovers, .. } = &self.owned;
        let at_end = state.checkpoint == Checkpoint::End;
        let backlog = context.retry_limits.backlog;
        if at_end && leftovers.is_empty() {
            // Nothing is left but the tail.
            return Err(RunEnd::RetryDue(UnixMillis::MAX));
        }
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
                let prior = others.get(index).map(PriorAttempts::of).unwrap_or_default();
                let clients = leftovers::take(&mut others, index, devices);
                let source = self.run.source();
                let (targets, failed) =
                    self.run.ask_unless_stopping(|| source.find(&clients)).await?;
                let batch = Batch { targets, failed, ..Batch::none(state.checkpoint) };
                Ok(PreparedBatch { batch, prior, others: Some(others) })
            }
        }
    }

    /// Returns true if the batch may be sent: the partition is unchanged and the message is not
    /// recalled. If that was last read more than [`RECALL_CHECK`] ago, the ledger is asked again.
    async fn is_fresh(&mut self) -> Result<bool, RunEnd> {
        for _ in 0..RECALL_CHECKS {
            if self.owned.checked_at.elapsed() <= RECALL_CHECK {
                return Ok(true);
            }
            let before = (self.owned.claim, self.owned.state);
            self.reclaim(None).await?;
            if self.owned.recalled || before != (self.owned.claim, self.owned.state) {
                return Ok(false);
            }
        }
        // Each answer took longer than `RECALL_CHECK`.
        Err(RunEnd::StoreUnavailable)
    }
}

/// Waits until this time. Never returns if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// Waits until the worker has been stopping for this long.
async fn stopped_for(hold: &Hold<'_>, time: Duration) {
    hold.stopping().cancelled().await;
    sleep(time).await;
}
