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
//! - What is left when a message expires or is recalled is counted, not sent.
//! - A batch that was sent and could not be saved travels with the partition's next message
//!   ([`Continuation::unsaved`]), whose worker saves it.
//! - If the app has a pace, a batch's devices are acquired from it before they are sent. When it is
//!   used up, the run ends ([`RunEnd::Paced`]): the partition waits in the queue, not in a task
//!   slot.
//!
//! A run is bounded in time, so that broadcasts of all sizes take turns and no queue message stays
//! unsettled for long.
//!
//! - here: the claim, and the loop from batch to batch
//! - `sending`: the life of a batch: read, granted by the pace, sent, waited for
//! - `open_batches`: what was handed over and is not answered yet
//! - `commit`: saving its outcomes together with the checkpoint

mod commit;
mod open_batches;
mod sending;

use std::{sync::Arc, time::Duration};

use push_index::IndexError;
use push_model::{
    device::TransportKind,
    envelope::{Head, Job, Unsaved},
    ids::AudienceKind,
    ledger::{Advance, Checkpoint, Counts, PartitionState, PartitionView, Plan, PlannedPartition},
    pace::TrafficClass,
    slots::SlotRange,
    time::UnixMillis,
};
use push_queue::Lane;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{
    batch::{Batch, DeviceSource},
    claim::{ClaimRequest, Claimant, OwnedPartition},
    classification::BatchResult,
    left::{ReadByRun, devices_left},
    run_end::{Continuation, RunEnd, RunResult},
};
use crate::{
    broadcasts::Left,
    context::Context,
    control::{
        hold::Hold,
        pace::Allowance,
        retrier::{Answer, RetryError},
        slots::TaskSlot,
    },
    spans,
    transport::{Outgoing, Permission, WaitGuard},
};

pub(crate) use self::open_batches::{Answered, OpenBatches};

/// How long a run of the job lane waits for its tail with its queue message.
const NAMED_PATIENCE: Duration = Duration::from_secs(1);

/// A run whose tail is never empty ends after this time, far below the time after which RabbitMQ takes
/// its message back.
const LONGEST_WITH_TAIL: Duration = Duration::from_secs(60);

/// The first batch of a partition, which was sent and is not saved.
#[derive(Debug)]
pub(crate) struct SentBatch {
    pub(crate) owned: OwnedPartition,
    pub(crate) batch: Batch,
    pub(crate) result: BatchResult,
    /// What was handed over and is not answered.
    pub(crate) open: OpenBatches,
    /// What its transports ask before they write more.
    pub(crate) permission: Arc<Permission>,
}

impl SentBatch {
    /// The step that saves the batch and ends the partition. `None` if devices are left, or one of
    /// the batch has no final outcome.
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

/// A run on a partition.
pub(crate) struct PartitionRun<'a> {
    pub(crate) context: &'a Context,
    pub(crate) job: &'a Job,
    pub(crate) plan: Option<&'a Plan>,
    /// What the plan says of it.
    pub(crate) planned: Option<&'a PlannedPartition>,
    /// The lane of its queue message: the task lane waits for a permit before it asks the
    /// index, the job lane does not.
    pub(crate) lane: Lane,
    /// The slot that it has, in the task lane.
    pub(crate) slot: Option<&'a TaskSlot>,
    /// What is left counts as unrecorded.
    pub(crate) written_off: bool,
    /// Its devices were counted as targeted before, so they are not counted again.
    pub(crate) beyond_plan: bool,
    /// The queue message.
    pub(crate) hold: &'a Hold<'a>,
}

impl PartitionRun<'_> {
    /// Claims the partition and works on it until the run ends.
    pub(crate) async fn run(
        &self,
        mut request: ClaimRequest,
        known: Option<(PartitionView, Instant)>,
    ) -> RunResult {
        match self.claimant().claim(&mut request, known).await {
            Ok(owned) => self.run_owned(request, owned).await,
            Err(end) => {
                // The partition has ended, and a worker that died may not have noted that.
                let left = match end {
                    RunEnd::Finished if self.lane == Lane::Tasks => Left::Devices(0),
                    _ => Left::Unknown,
                };
                RunResult { left, ..RunResult::not_begun(end, request, None) }
            }
        }
    }

    /// Works on a partition that is claimed already.
    pub(crate) async fn run_owned(
        &self,
        request: ClaimRequest,
        owned: OwnedPartition,
    ) -> RunResult {
        self.run_from(request, owned, None).await
    }

    /// Goes on with a partition that is claimed, and whose first batch was sent.
    pub(crate) async fn run_sent(&self, request: ClaimRequest, sent: SentBatch) -> RunResult {
        let SentBatch { owned, batch, result, open, permission } = sent;
        self.run_from(request, owned, Some((batch, result, open, permission))).await
    }

    async fn run_from(
        &self,
        mut request: ClaimRequest,
        owned: OwnedPartition,
        sent: Option<(Batch, BatchResult, OpenBatches, Arc<Permission>)>,
    ) -> RunResult {
        let begun = Instant::now();
        let _in_work = self.is_broadcast().then(|| self.context.rate.run());
        request.unsaved = None;
        request.record_claim(&owned.claim);
        let from = owned.state.checkpoint;
        let done = counted(&request, &owned);
        let lifetime = self.context.lifetime(&self.job.head);
        let stopping = self.hold.stopping().clone();
        let clock = self.context.clock.clone();
        let mut work = ActiveRun {
            run: self,
            outgoing: Arc::new(self.context.outgoing(self.job)),
            permission: Permission::new(lifetime, clock, stopping, owned.checked_at),
            request,
            owned,
            done,
            open: OpenBatches::default(),
            unsaved: None,
            from,
            found: 0,
            waits_for: None,
            room: None,
        };
        work.count_claim();
        let saved = match sent {
            Some((batch, result, open, permission)) => {
                (work.open, work.permission) = (open, permission);
                work.commit_batch(batch, None, result).await
            }
            None => Ok(()),
        };
        let end = match saved {
            Ok(()) => work.run_batches().await,
            Err(end) => end,
        };
        let end = work.detach(end);
        self.context.metrics.run_took(begun.elapsed());
        work.into_result(end)
    }

    /// Waits for what a run left open that was detached from its queue message.
    pub(crate) async fn finish(&self, detached: DetachedRun) -> RunResult {
        let DetachedRun {
            outgoing,
            permission,
            request,
            owned,
            done,
            open,
            stopping: _,
            room: _room,
        } = detached;
        let from = owned.state.checkpoint;
        let mut work = ActiveRun {
            run: self,
            outgoing,
            permission,
            request,
            owned,
            done,
            open,
            unsaved: None,
            from,
            found: 0,
            waits_for: None,
            room: None,
        };
        let end = work.end_with_tail(RunEnd::RetryDue(UnixMillis::default()), None).await;
        work.into_result(end)
    }

    fn is_broadcast(&self) -> bool {
        self.job.audience.kind() == AudienceKind::Broadcast
    }

    /// What metrics say of the message.
    fn message(&self) -> (&Head, AudienceKind) {
        (&self.job.head, self.job.audience.kind())
    }

    /// Its slot ranges; none for named devices.
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

    /// Asks the index until it answers, unless the worker stops. In the task lane each try waits
    /// for its permit.
    async fn ask_unless_stopping<T, F>(&self, step: impl Fn() -> F) -> Result<T, RunEnd>
    where
        F: Future<Output = Result<T, IndexError>>,
    {
        if self.hold.is_stopping() {
            return Err(RunEnd::Interrupted);
        }
        Ok(self.ask_index(step).await?.value)
    }

    /// The same, where the first try is made even while the worker stops.
    async fn ask_index<T, F>(&self, step: impl Fn() -> F) -> Result<Answer<T>, RetryError>
    where
        F: Future<Output = Result<T, IndexError>>,
    {
        let permit = || async {
            match self.lane {
                Lane::Tasks | Lane::Isolated => {
                    self.context.priority.bulk(self.hold.stopping()).await
                }
                Lane::Jobs => None,
            }
        };
        self.context.retrier.ask_index_with_permit(self.hold, permit, step).await
    }
}

/// What is counted of a partition that was just claimed. None if its messages do not know: another
/// delivery changed it, or the index went back to an earlier state.
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

/// A run that has claimed its partition.
struct ActiveRun<'a> {
    run: &'a PartitionRun<'a>,
    outgoing: Arc<Outgoing>,
    /// What the transports ask before they write more.
    permission: Arc<Permission>,
    request: ClaimRequest,
    /// Its leftovers are those beside the tail.
    owned: OwnedPartition,
    /// What was handed over and is not settled.
    open: OpenBatches,
    unsaved: Option<Unsaved>,
    /// Where it began to read.
    from: Checkpoint,
    /// The devices that it found from there on.
    found: u64,
    /// What was counted of the partition, if its messages know.
    done: Option<Counts>,
    /// The transport of the first device that is to be tried again.
    waits_for: Option<TransportKind>,
    /// Room to wait for the tail without the queue message.
    room: Option<OwnedSemaphorePermit>,
}

/// What a run left open, to be waited for without its queue message.
#[derive(Debug)]
pub(crate) struct DetachedRun {
    outgoing: Arc<Outgoing>,
    permission: Arc<Permission>,
    request: ClaimRequest,
    owned: OwnedPartition,
    done: Option<Counts>,
    open: OpenBatches,
    stopping: CancellationToken,
    /// Counted until it has ended.
    room: (OwnedSemaphorePermit, Option<WaitGuard>),
}

impl DetachedRun {
    /// Cancelled when the worker stops.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }
}

impl ActiveRun<'_> {
    /// How far a push to named devices is ([`PartitionTask::progress`]).
    ///
    /// [`PartitionTask::progress`]: push_model::envelope::PartitionTask::progress
    fn progress(&self) -> Option<Unsaved> {
        let OwnedPartition { state, leftovers, .. } = &self.owned;
        let done = self.done.as_ref().filter(|_| !self.run.is_broadcast())?;
        let leftovers = leftovers.iter().chain(self.open.leftovers()).cloned().collect();
        Some(Unsaved::from_nothing(state.checkpoint, leftovers, done.clone()))
    }

    /// What it leaves of the partition when it ends like this.
    fn left(&self, end: &RunEnd) -> Left {
        let Self { run, owned, from, found, .. } = self;
        match end {
            // The partition is another worker's, or nothing is known of it.
            RunEnd::Stale
            | RunEnd::Superseded
            | RunEnd::Contended
            | RunEnd::Crowded
            | RunEnd::Deferred(_)
            | RunEnd::IndexUnavailable
            | RunEnd::Broken(_) => Left::Unknown,
            // A broadcast that is sent at once is not listed.
            RunEnd::Finished if run.lane == Lane::Jobs => Left::Unknown,
            RunEnd::Finished => Left::Devices(0),
            _ if owned.recalled => Left::Recalled,
            _ => {
                let (from, to, found) = (*from, owned.state.checkpoint, *found);
                let left =
                    devices_left(run.ranges(), ReadByRun { from, to, found }, &owned.leftovers);
                left.map_or(Left::Unknown, Left::Devices)
            }
        }
    }

    /// Works on the partition until the run ends, and then waits for its tail.
    async fn run_batches(&mut self) -> RunEnd {
        let end = self.next_batches().await;
        match end {
            // The partition is another worker's, or nothing can be saved.
            RunEnd::Finished
            | RunEnd::Stale
            | RunEnd::Superseded
            | RunEnd::Contended
            | RunEnd::Crowded
            | RunEnd::Detached(_)
            | RunEnd::Deferred(_)
            | RunEnd::IndexUnavailable
            | RunEnd::Broken(_) => return end,
            RunEnd::Yielded
            | RunEnd::TransportUnavailable
            | RunEnd::Paced(_)
            | RunEnd::RetryDue(_)
            | RunEnd::Interrupted => {}
        }
        if self.run.lane == Lane::Jobs && !self.open.is_empty() {
            // Nothing of the job lane waits for a slow transport, if there is room for what waits.
            self.room = self.run.context.detached.room();
        }
        let patience = self.room.is_some().then_some(NAMED_PATIENCE);
        let mut end = self.end_with_tail(end, patience).await;
        if self.run.hold.is_stopping() && self.room.take().is_some() && !self.open.is_empty() {
            // Once the worker has stopped, its answers are lost, so it gets its time now.
            end = self.end_with_tail(end, None).await;
        }
        if self.open.is_empty() {
            self.room = None;
        }
        end
    }

    /// Waits for the tail, for so long at most, and returns how the run ends then.
    async fn end_with_tail(&mut self, end: RunEnd, patience: Option<Duration>) -> RunEnd {
        let deadline = self.run.context.deadline(&self.run.job.head);
        if !self.open.is_empty()
            && let Some(slot) = self.run.slot
        {
            slot.leave();
        }
        if let Err(end) = self.finish_tail(deadline, patience).await {
            return end;
        }
        let first_due = self.owned.leftovers.iter().map(|leftover| leftover.due_at).min();
        match end {
            _ if self.owned.state.is_ended() => RunEnd::Finished,
            RunEnd::RetryDue(_) => RunEnd::RetryDue(first_due.unwrap_or_default()),
            end => end,
        }
    }

    /// If there is room for what is open, it is waited for without the queue message. The task that is published then tries it again after the longest time that a transport takes.
    fn detach(&mut self, end: RunEnd) -> RunEnd {
        let context = self.run.context;
        let waits = matches!(
            end,
            RunEnd::RetryDue(_) | RunEnd::Yielded | RunEnd::Paced(_) | RunEnd::TransportUnavailable
        );
        if self.room.is_none() || !waits {
            self.room = None;
            return end;
        }
        RunEnd::Detached(context.now().plus(context.transports.longest_delivery()))
    }

    fn into_result(self, end: RunEnd) -> RunResult {
        let (left, progress) = (self.left(&end), self.progress());
        let Self {
            run,
            outgoing,
            permission,
            request,
            owned,
            done,
            open,
            unsaved,
            waits_for,
            room,
            ..
        } = self;
        let claim = Some(owned.claim);
        let continues = request.continued();
        let stopping = run.hold.stopping().clone();
        let detached = room.map(|room| {
            let waits = open.transport().map(|kind| run.context.transports.note_waiting(kind));
            let room = (room, waits);
            Box::new(DetachedRun {
                outgoing,
                permission,
                request,
                owned,
                done,
                open,
                stopping,
                room,
            })
        });
        let continuation = Continuation { claim, continues, unsaved, progress };
        RunResult { end, continuation, left, waits_for, detached }
    }

    async fn next_batches(&mut self) -> RunEnd {
        let (context, job) = (self.run.context, self.run.job);
        let pace = match context.pace(&job.app(), self.run.hold).await {
            Ok(pace) => pace,
            Err(error) => return error.into(),
        };
        // A job without slot ranges is a push to named devices. Everything in the task lane counts
        // as a broadcast, also named devices that are tried again.
        let class = match self.run.lane {
            Lane::Jobs if self.run.ranges().is_empty() => TrafficClass::Named,
            Lane::Jobs | Lane::Tasks | Lane::Isolated => TrafficClass::Broadcast,
        };
        let mut allowance = Allowance::new(pace, class);
        let deadline = context.deadline(&job.head);
        let begun = Instant::now();
        let mut ends_at = begun + context.run.time;
        loop {
            if let Err(end) = self.settle_tail(deadline).await {
                return end;
            }
            let now = context.now();
            let is_over = self.owned.recalled || now > deadline;
            let step = if self.owned.state.is_ended() {
                return RunEnd::Finished;
            } else if self.run.hold.is_stopping() {
                return RunEnd::Interrupted;
            } else if Instant::now() >= ends_at {
                if self.open.is_empty() || begun.elapsed() > LONGEST_WITH_TAIL {
                    return RunEnd::Yielded;
                }
                // The tail has to be waited for here, so other partitions get their turn meanwhile.
                if let Some(slot) = self.run.slot {
                    slot.enter_again().await;
                }
                ends_at = Instant::now() + context.run.time;
                continue;
            } else if is_over && !self.open.is_empty() && self.run.lane == Lane::Jobs {
                // Waited for without the queue message, if there is room.
                return RunEnd::RetryDue(now);
            } else if is_over && !self.open.is_empty() {
                // What was handed over is counted by its answers, and the rest is written off then.
                self.finish_tail(deadline, None).await
            } else if is_over {
                self.write_off().await
            } else if now < allowance.next_at {
                return RunEnd::Paced(allowance.next_at);
            } else {
                let span = spans::batch(job, self.request.partition);
                let send = self.send_next(&mut allowance, deadline, &span);
                send.instrument(span.clone()).await
            };
            if let Err(end) = step {
                return end;
            }
        }
    }
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
            nonce: 5,
            continues: None,
            waits_for: None,
            attempt: 0,
            unsaved: None,
            progress: Some(Unsaved::from_nothing(AT, Vec::new(), progress)),
            detached: false,
            written_off: false,
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
        // The claim saves the step from nothing, in the delivery that began the entry anew or in one
        // that follows it with the same progress.
        let mut again = request(sent(4));
        again.begun_anew();
        again.begun_anew();
        let saved = again.unsaved.as_ref().map(|unsaved| unsaved.counts.clone());
        assert_eq!(saved, Some(sent(4)));
        assert_eq!(counted(&again, &owned(1, AT, saved)), Some(sent(4)));
        assert_eq!(counted(&request(sent(4)), &owned(1, AT, Some(sent(4)))), Some(sent(4)));
    }
}
