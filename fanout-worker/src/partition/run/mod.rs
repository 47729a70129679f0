//! One run on a partition: read a batch, send it, save it, and again.
//!
//! This is where the guarantees are made:
//! - The partition is claimed before the first device is sent to ([`super::claim`]). A batch is
//!   sent first and saved afterwards, and the save requires that nothing has changed the partition
//!   since the claim. So a crash repeats at most this one batch, and of two workers on one
//!   partition one saves, and the other stops before it sends anything more.
//! - A device without an outcome becomes a leftover of its partition, in the step that saves the
//!   others of its batch ([`super::classification`], [`super::leftovers`]).
//! - A batch is handed to a transport only if the ledger said less than
//!   [`RECALL_CHECK`](push_model::ledger::RECALL_CHECK) ago that the message is not recalled.
//! - Devices that are left when a message expires or is recalled are counted, not sent to.
//! - A batch that was sent and could not be saved travels with the partition's next message
//!   ([`Continuation::unsaved`]), whose worker saves it.
//! - If the app has a pace, a batch's devices are acquired from it before they are sent. When it is
//!   used up, the run ends ([`RunEnd::Paced`]): the partition waits in the queue, not in a task
//!   slot.
//!
//! A run is bounded in time, so that broadcasts of all sizes take turns and no queue message stays
//! unsettled for long.
//!
//! - here: the start of a run, and its claim
//! - `active`: the loop from batch to batch, and the waits between them
//! - `detached`: runs that go on without their queue message
//! - `sending`: the life of a batch: read, granted by the pace, sent, waited for
//! - `open_batches`: batches that were handed over and are not answered yet
//! - `commit`: saving its outcomes together with the checkpoint
//! - `result`: how the run ended, and where the next message of the partition continues

mod active;
mod commit;
mod detached;
mod open_batches;
mod result;
mod sending;

use std::sync::Arc;

use push_model::{
    envelope::{Head, Job, LateDevices, Unsaved},
    ids::AudienceKind,
    ledger::{Advance, Checkpoint, Counts, PartitionState, PartitionView, Plan, PlannedPartition},
    slots::SlotRange,
};
use push_queue::WorkLane;
use push_store::IndexError;
use tokio::time::Instant;

use self::active::{ActiveRun, OpenPartition};
pub(crate) use self::{
    detached::DetachedRun,
    open_batches::{Answered, OpenBatches},
    result::{Continuation, RunResult},
};
use super::{
    batch::{Batch, DeviceSource},
    claim::{ClaimRequest, Claimant, OwnedPartition},
    classification::BatchResult,
    remaining::Remaining,
    run_end::RunEnd,
};
use crate::{
    context::Context,
    control::{
        hold::Hold,
        retrier::{Answer, RetryError},
        slots::TaskSlot,
    },
};
use push_transports::Permission;

/// The first batch of a partition after it was sent and before it is saved.
#[derive(Debug)]
pub(crate) struct SentBatch {
    pub(crate) owned: OwnedPartition,
    pub(crate) batch: Batch,
    pub(crate) result: BatchResult,
    /// The devices that were handed over and are not answered.
    pub(crate) open: OpenBatches,
    /// The permission that its transports check before they write more.
    pub(crate) permission: Arc<Permission>,
}

impl SentBatch {
    /// Returns the step that saves the batch and ends the partition. `None` if devices are left, or
    /// if a device of the batch has no final outcome.
    pub(crate) fn final_step(&self, dedup_nonce: u64) -> Option<Advance> {
        let is_all = self.batch.next == Checkpoint::End
            && self.owned.leftovers.is_empty()
            && self.open.is_empty();
        (is_all && self.result.is_final()).then(|| Advance {
            dedup_nonce,
            partition: 0,
            from: self.owned.state,
            to: PartitionState::ENDED,
            leftovers: None,
            counts: self.result.counts(&self.batch),
            keep_until: None,
        })
    }
}

/// The knowledge with which a run begins.
#[derive(Debug)]
pub(crate) enum Start {
    /// Nothing is known of the partition.
    Unclaimed,
    /// The ledger was asked for the partition at this time.
    Known(PartitionView, Instant),
    /// The partition is claimed, and nothing was sent.
    Claimed(OwnedPartition),
    /// The partition is claimed, and its first batch was sent.
    Sent(Box<SentBatch>),
}

/// A run on a partition.
pub(crate) struct PartitionRun<'a> {
    pub(crate) context: &'a Context,
    pub(crate) job: &'a Job,
    pub(crate) plan: Option<&'a Plan>,
    pub(crate) planned: Option<&'a PlannedPartition>,
    /// The lane of its queue message: the task lane waits for a permit before it asks a
    /// store, the job lane does not.
    pub(crate) lane: WorkLane,
    /// The slot that it has, in the task lane.
    pub(crate) slot: Option<&'a TaskSlot>,
    /// The count for devices that remain when the message may no longer be sent.
    pub(crate) late_devices: LateDevices,
    /// The queue message.
    pub(crate) hold: &'a Hold<'a>,
}

impl PartitionRun<'_> {
    /// Works on the partition until the run ends.
    pub(crate) async fn run(&self, mut request: ClaimRequest, start: Start) -> RunResult {
        let known = match start {
            Start::Unclaimed => None,
            Start::Known(view, asked_at) => Some((view, asked_at)),
            Start::Claimed(owned) => return self.work(request, owned, None).await,
            Start::Sent(sent) => {
                let SentBatch { owned, batch, result, open, permission } = *sent;
                return self.work(request, owned, Some((batch, result, open, permission))).await;
            }
        };
        match self.claimant().claim(&mut request, known).await {
            Ok(owned) => self.work(request, owned, None).await,
            Err(end) => {
                // The partition has ended, and a worker that died may not have noted that.
                let remaining = match end {
                    RunEnd::Finished if self.lane == WorkLane::Tasks => Remaining::Devices(0),
                    _ => Remaining::Unknown,
                };
                RunResult { remaining, ..RunResult::not_begun(end, request, None) }
            }
        }
    }

    /// Works on a partition that is claimed, and whose first batch may be sent already.
    async fn work(
        &self,
        mut request: ClaimRequest,
        owned: OwnedPartition,
        sent: Option<(Batch, BatchResult, OpenBatches, Arc<Permission>)>,
    ) -> RunResult {
        let started = Instant::now();
        let _in_work = self.is_broadcast().then(|| self.context.rate.run());
        request.unsaved = None;
        request.record_claim(&owned.claim);
        let (batch, open, permission) = match sent {
            Some((batch, result, open, permission)) => (Some((batch, result)), open, permission),
            None => {
                let lifetime = self.context.lifetime(&self.job.head);
                let (clock, stopping) = (self.context.clock.clone(), self.hold.stopping().clone());
                let permission = Permission::new(lifetime, clock, stopping, owned.checked_at);
                (None, OpenBatches::default(), permission)
            }
        };
        let outgoing = Arc::new(self.context.outgoing(self.job));
        let done = counted(&request, &owned);
        let partition = OpenPartition { outgoing, permission, request, owned, done, open };
        let mut active = ActiveRun::new(self, partition);
        active.count_claim();
        let saved = match batch {
            Some((batch, result)) => active.commit_batch(batch, None, result).await,
            None => Ok(()),
        };
        let end = match saved {
            Ok(()) => active.run_batches().await,
            Err(end) => end,
        };
        let end = active.detach(end);
        self.context.metrics.run_took(started.elapsed());
        active.into_result(end)
    }

    fn is_broadcast(&self) -> bool {
        self.job.audience.kind() == AudienceKind::Broadcast
    }

    /// Returns the labels of the message in metrics.
    fn message(&self) -> (&Head, AudienceKind) {
        (&self.job.head, self.job.audience.kind())
    }

    /// Returns its slot ranges; none for named devices.
    fn ranges(&self) -> &[SlotRange] {
        self.planned.map_or(&[], |planned| &planned.ranges)
    }

    fn claimant(&self) -> Claimant<'_> {
        let Self { context, job, plan, hold, .. } = *self;
        Claimant { context, job, plan, hold }
    }

    fn source(&self) -> DeviceSource<'_> {
        DeviceSource { context: self.context, job: self.job, planned: self.planned }
    }

    /// Asks a store until it answers, unless the worker stops. In the task lane each try waits
    /// for its permit.
    async fn ask_unless_stopping<T, F>(&self, step: impl Fn() -> F) -> Result<T, RunEnd>
    where
        F: Future<Output = Result<T, IndexError>>,
    {
        if self.hold.is_stopping() {
            return Err(RunEnd::Interrupted);
        }
        Ok(self.ask_store(step).await?.value)
    }

    /// Asks a store until it answers. The first try is made even while the worker stops.
    async fn ask_store<T, F>(&self, step: impl Fn() -> F) -> Result<Answer<T>, RetryError>
    where
        F: Future<Output = Result<T, IndexError>>,
    {
        let permit = || async {
            match self.lane {
                WorkLane::Tasks => self.context.priority.bulk(self.hold.stopping()).await,
                WorkLane::Jobs => None,
            }
        };
        self.context.retrier.ask_store_with_permit(self.hold, permit, step).await
    }
}

/// Returns the counts so far of a partition that was just claimed. None if the
/// queue message does not carry them, because another delivery changed the partition or the ledger
/// went back to an earlier state.
fn counted(request: &ClaimRequest, owned: &OwnedPartition) -> Option<Counts> {
    let OwnedPartition { state, leftovers, saved, .. } = owned;
    let progress = request.progress.as_ref();
    if let Some(saved) = saved {
        // The claim saved the first step of the partition: nothing was counted before. If the entry
        // was begun anew, that step has all that the progress has.
        if state.is_ended() || state.step == 1 {
            return Some(saved.clone());
        }
        let mut done = progress?.counts.clone();
        done.add(saved);
        return Some(done);
    }
    let is_there = |progress: &&Unsaved| {
        progress.checkpoint == state.checkpoint && progress.leftovers.as_ref() == Some(leftovers)
    };
    let is_new = state.checkpoint == Checkpoint::START && leftovers.is_empty();
    let done = progress.filter(is_there).map(|progress| progress.counts.clone());
    done.or_else(|| is_new.then(Counts::default))
}

#[cfg(test)]
mod tests {
    use push_model::{
        envelope::PartitionTask,
        ledger::{Claim, Outcomes},
    };

    use super::*;

    const AT: Checkpoint = Checkpoint::At { range: 0, offset: 4 };

    fn sent(devices: u64) -> Counts {
        let outcomes = Outcomes { sent: devices, ..Outcomes::default() };
        Counts { targeted: devices, outcomes, ..Counts::default() }
    }

    fn request(progress: Counts) -> ClaimRequest {
        let task = PartitionTask {
            partition: 0,
            parent: 3,
            parent_owner: 0,
            nonce: 5,
            continues: None,
            waits_for: None,
            attempt: 0,
            unsaved: None,
            progress: Some(Unsaved::from_nothing(AT, Vec::new(), progress)),
            detached: false,
            late_devices: LateDevices::Expired,
        };
        ClaimRequest::of(&task, 1, 7)
    }

    fn owned(step: u64, checkpoint: Checkpoint, saved: Option<Counts>) -> OwnedPartition {
        let claim = Claim { epoch: 4, nonce: 5, delivery: 1, owner: 7 };
        OwnedPartition {
            claim,
            state: PartitionState { claim: Some(claim), step, checkpoint },
            leftovers: Vec::new(),
            recalled: false,
            checked_at: Instant::now(),
            takeover: false,
            saved,
        }
    }

    #[test]
    fn what_was_counted_before_and_what_the_claim_saved_add_up() {
        let after = Checkpoint::At { range: 0, offset: 6 };
        assert_eq!(counted(&request(sent(4)), &owned(3, after, Some(sent(2)))), Some(sent(6)));
        assert_eq!(counted(&request(sent(4)), &owned(2, AT, None)), Some(sent(4)));
        assert_eq!(counted(&request(sent(4)), &owned(2, after, None)), None, "another's state");
    }

    #[test]
    fn an_entry_that_was_begun_anew_is_counted_once_however_often_it_was_lost() {
        // The claim saves the step from nothing, in the delivery that began the entry anew or in
        // one that follows it with the same progress.
        let mut again = request(sent(4));
        again.begun_anew();
        again.begun_anew();
        let saved = again.unsaved.as_ref().map(|unsaved| unsaved.counts.clone());
        assert_eq!(saved, Some(sent(4)));
        assert_eq!(counted(&again, &owned(1, AT, saved)), Some(sent(4)));
        assert_eq!(counted(&request(sent(4)), &owned(1, AT, Some(sent(4)))), Some(sent(4)));
    }
}
