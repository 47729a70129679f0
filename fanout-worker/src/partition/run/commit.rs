//! Saving the outcomes of devices, and the checkpoint behind them, in one step of the ledger.

use push_model::{
    envelope::{LateDevices, Unsaved},
    ids::ClientId,
    ledger::{
        Advance, AdvanceOutcome, Checkpoint, Counts, FailReason, Leftover, Outcomes,
        PartitionState, Retried, RetryReason, leftover,
    },
};
use tracing::warn;

use super::{ActiveRun, PartitionRun, counted};
use crate::{
    control::retrier::RetryError,
    partition::{
        batch::Batch,
        classification::{BatchResult, NotSent},
        gone, leftovers,
        run_end::RunEnd,
    },
};

impl ActiveRun<'_> {
    /// Saves the result of a batch that was sent.
    pub(super) async fn commit_batch(
        &mut self,
        batch: Batch,
        others: Option<Vec<Leftover>>,
        result: BatchResult,
    ) -> Result<(), RunEnd> {
        match result.not_sent {
            Some(NotSent::Stopped) => Ok(()),
            Some(NotSent::Unavailable) if others.is_none() => {
                // No device has an outcome, but the message's status shows why it waits.
                let counts = Counts { retried: result.retried, ..Counts::default() };
                self.commit(self.owned.state.checkpoint, counts, None).await?;
                Err(RunEnd::TransportUnavailable)
            }
            // Devices that are tried again wait by themselves: their server may be away alone, and those that
            // were not read yet may have others.
            None | Some(NotSent::Unavailable) => self.commit_results(batch, others, result).await,
        }
    }

    pub(super) async fn commit_results(
        &mut self,
        batch: Batch,
        others: Option<Vec<Leftover>>,
        result: BatchResult,
    ) -> Result<(), RunEnd> {
        let (context, hold) = (self.run.context, self.run.hold);
        let Counts { targeted: found, outcomes, retried } = result.counts(&batch);
        let BatchResult { leftovers: more, gone, .. } = result;
        let is_retry = others.is_some();
        let leftovers = match (others, more.is_empty()) {
            (None, true) => None,
            (others, _) => {
                let mut all = others.unwrap_or_else(|| self.owned.leftovers.clone());
                more.into_iter().for_each(|more| leftovers::add(&mut all, more));
                Some(all)
            }
        };
        let targeted = if is_retry { 0 } else { found };
        let saved =
            self.commit(batch.next, Counts { targeted, outcomes, retried }, leftovers).await;
        // `Finished`: an earlier try of this step may have ended the partition, with its answer
        // lost.
        if !matches!(saved, Ok(()) | Err(RunEnd::Finished)) {
            return saved;
        }
        // Removed after the save, which must not wait for it. A device that is not removed is found
        // gone by the next message, unless it has registered again.
        if !gone.is_empty() {
            let app = self.run.job.app();
            gone::remove(context, &app, &gone, hold).await?;
        }
        saved
    }

    /// Counts the leftovers and the devices up to the next checkpoint as expired, recalled or
    /// unrecorded.
    pub(super) async fn write_off(&mut self) -> Result<(), RunEnd> {
        let source = self.run.source();
        let from = self.owned.state.checkpoint;
        let count = || source.count(from);
        let (left, next) = match self.run.ask_store(count).await {
            Ok(answer) => answer.value,
            // The app's devices in the index can never be read. The entry is closed without a
            // count.
            Err(RetryError::Broken(reason)) if self.run.late_devices == LateDevices::Unrecorded => {
                warn!(
                    runbook = "stored-records-cannot-be-read",
                    reason, "a partition was closed without counting its devices"
                );
                (0, Checkpoint::End)
            }
            Err(error) => return Err(error.into()),
        };
        let all = left + leftover::count(&self.owned.leftovers);
        let mut outcomes = Outcomes::default();
        if self.owned.recalled {
            outcomes.recalled = all;
        } else {
            match self.run.late_devices {
                LateDevices::Unrecorded if all > 0 => {
                    outcomes.failed.insert(FailReason::Unrecorded, all);
                }
                LateDevices::Unrecorded | LateDevices::Expired => outcomes.expired = all,
            }
        }
        // Devices that may have received the message are counted apart, because no copy of the
        // message may replace this one then.
        let unanswered = leftover::unanswered(&self.owned.leftovers);
        let mut retried = Retried::new();
        if unanswered > 0 {
            retried.insert(RetryReason::Unanswered, unanswered);
        }
        let leftovers = (!self.owned.leftovers.is_empty()).then(Vec::new);
        self.commit(next, Counts { targeted: left, outcomes, retried }, leftovers).await
    }

    /// Saves counts, and the checkpoint behind them. `leftovers` are those beside the tail; none
    /// leaves them as they are.
    async fn commit(
        &mut self,
        checkpoint: Checkpoint,
        counts: Counts,
        leftovers: Option<Vec<Leftover>>,
    ) -> Result<(), RunEnd> {
        let from = self.owned.state;
        let beside_tail = leftovers.as_ref().unwrap_or(&self.owned.leftovers);
        let none_left = beside_tail.is_empty() && self.open.is_empty();
        let stored = (leftovers.is_some() || self.open.is_changed()).then(|| {
            let mut all = beside_tail.clone();
            self.open.leftovers().for_each(|more| leftovers::add(&mut all, more.clone()));
            all
        });
        let to = if checkpoint == Checkpoint::End && none_left {
            PartitionState::ENDED
        } else {
            PartitionState { step: from.step.saturating_add(1), checkpoint, ..from }
        };
        let partition = self.request.partition;
        let dedup_nonce = self.run.job.dedup_nonce;
        let step = Advance {
            dedup_nonce,
            partition,
            from,
            to,
            leftovers: stored,
            counts,
            keep_until: None,
        };
        self.unsaved = Some(Unsaved {
            from,
            checkpoint,
            counts: step.counts.clone(),
            leftovers: step.leftovers.clone(),
        });
        let (context, job) = (self.run.context, self.run.job);
        let (message, app) = (&job.head.message_id, job.app());
        // Stopping does not interrupt the first try: a batch that was sent is saved if it can be.
        let advance = || context.ledger.advance(&app, message, &step);
        let answer = self.run.ask_store(advance).await?;
        let AdvanceOutcome::Saved { recalled } = answer.value else {
            return self.resolve_conflict(to, step.counts).await;
        };
        self.unsaved = None;
        self.open.saved();
        self.done.iter_mut().for_each(|done| done.add(&step.counts));
        self.count_committed(&step.counts);
        self.found += step.counts.targeted;
        self.owned.state = to;
        self.count_if_closed();
        if let Some(leftovers) = leftovers {
            self.owned.leftovers = leftovers;
        }
        self.owned.recalled = recalled;
        self.owned.checked_at = answer.asked_at;
        self.note_permission();
        Ok(())
    }

    /// Determines why the ledger refused a step: an earlier try of it was saved, another worker
    /// owns the partition now, or the ledger lost its last writes.
    async fn resolve_conflict(
        &mut self,
        intended: PartitionState,
        counts: Counts,
    ) -> Result<(), RunEnd> {
        let before = self.done.clone();
        match self.reclaim(Some(intended)).await {
            Ok(()) if self.owned.state == intended => {
                self.open.saved();
                self.done = before.map(|mut done| {
                    done.add(&counts);
                    done
                });
                self.count_committed(&counts);
                Ok(())
            }
            // This step or another one ended the partition.
            Err(RunEnd::Finished) if intended.is_ended() => {
                self.count_closed();
                Err(RunEnd::Finished)
            }
            answer => answer,
        }
    }

    /// Reads the partition, and claims it again if necessary. If it is neither in the state that
    /// this run knows nor in the intended one, the tail is forgotten, because the ledger says which
    /// of its devices are tried again.
    pub(super) async fn reclaim(&mut self, intended: Option<PartitionState>) -> Result<(), RunEnd> {
        self.request.unsaved = self.unsaved.take();
        self.request.progress = self.progress();
        let owned = self.run.claimant().claim(&mut self.request, None).await;
        let unsaved = self.request.unsaved.take();
        match owned {
            Ok(owned) => {
                let is_takeover = owned.takeover;
                if owned.state != self.owned.state && Some(owned.state) != intended {
                    self.open.clear();
                }
                self.done = counted(&self.request, &owned);
                self.owned = owned;
                let of_tail: Vec<ClientId> =
                    self.open.leftovers().flat_map(|tail| &tail.clients).cloned().collect();
                leftovers::remove(&mut self.owned.leftovers, &of_tail);
                self.note_permission();
                self.count_claim();
                // Two consumers hold the same message. Handing on under a new nonce ends that.
                if is_takeover { Err(RunEnd::Yielded) } else { Ok(()) }
            }
            Err(end) => {
                if !matches!(end, RunEnd::Finished | RunEnd::Stale | RunEnd::Superseded) {
                    self.unsaved = unsaved;
                }
                Err(end)
            }
        }
    }

    /// Tells the transports the last answer of the ledger about the message.
    pub(super) fn note_permission(&self) {
        if self.owned.recalled {
            self.permission.withdraw();
        } else {
            self.permission.renew(self.owned.checked_at);
        }
    }

    /// Counts the batch that the claim saved in the metrics.
    pub(super) fn count_claim(&mut self) {
        if let Some(counts) = self.owned.saved.take() {
            self.count_committed(&counts);
        }
        self.count_if_closed();
    }

    fn count_committed(&self, counts: &Counts) {
        let PartitionRun { context, job, .. } = self.run;
        context.metrics.committed(&job.head.app_id, counts);
        if self.run.is_broadcast() {
            context.rate.add(counts.outcomes.total());
        }
    }

    /// Counts the message, if this run has just ended its only partition.
    fn count_if_closed(&self) {
        if self.owned.state.is_ended() {
            self.count_closed();
        }
    }

    /// A message of several partitions is counted by its closing check.
    fn count_closed(&self) {
        let partitions = self.run.plan.map_or(1, |plan| plan.partitions.len());
        if partitions == 1 {
            self.run.context.closed.count(self.run.job);
        }
    }
}
