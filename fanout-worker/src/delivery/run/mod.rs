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
//! - `sending`: the life of a batch: read, granted by the pace, sent
//! - `commit`: saving its outcomes together with the checkpoint

mod commit;
mod sending;

use push_index::IndexError;
use push_model::{
    envelope::{Head, Job, Unsaved},
    ids::AudienceKind,
    ledger::{Advance, Checkpoint, Counts, PartitionState, PartitionView, Plan},
    pace::TrafficClass,
    slots::SlotRange,
};
use push_queue::Lane;
use tokio::time::Instant;
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
    },
    spans,
};

/// The first batch of a partition, which was sent and is not saved.
#[derive(Debug)]
pub(crate) struct SentBatch {
    pub(crate) owned: OwnedPartition,
    pub(crate) batch: Batch,
    pub(crate) result: BatchResult,
}

impl SentBatch {
    /// The step that saves the batch and ends the partition. `None` if devices are left, or one of
    /// the batch has no final outcome.
    pub(crate) fn final_step(&self, dedup_nonce: u64) -> Option<Advance> {
        let is_all = self.batch.next == Checkpoint::End && self.owned.leftovers.is_empty();
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
    /// Empty for named devices.
    pub(crate) ranges: &'a [SlotRange],
    /// The lane of its queue message: the task lane waits for a permit before it asks the
    /// index, the job lane does not.
    pub(crate) lane: Lane,
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
                let unsaved = request.unsaved.take();
                // The partition has ended, and a worker that died may not have noted that.
                let left = match end {
                    RunEnd::Finished if self.lane == Lane::Tasks => Left::Devices(0),
                    _ => Left::Unknown,
                };
                RunResult {
                    left,
                    end,
                    continuation: Continuation {
                        claim: None,
                        continues: request.continued(),
                        unsaved,
                        progress: None,
                    },
                }
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
        let SentBatch { owned, batch, result } = sent;
        self.run_from(request, owned, Some((batch, result))).await
    }

    async fn run_from(
        &self,
        mut request: ClaimRequest,
        owned: OwnedPartition,
        sent: Option<(Batch, BatchResult)>,
    ) -> RunResult {
        let begun = Instant::now();
        let _in_work = self.is_broadcast().then(|| self.context.rate.run());
        request.unsaved = None;
        request.record_claim(&owned.claim);
        let from = owned.state.checkpoint;
        let done = counted(&request, &owned);
        let mut work = ActiveRun { run: self, request, owned, unsaved: None, from, found: 0, done };
        work.count_claim();
        let saved = match sent {
            Some((batch, result)) => work.commit_batch(batch, None, result).await,
            None => Ok(()),
        };
        let end = match saved {
            Ok(()) => work.run_batches().await,
            Err(end) => end,
        };
        self.context.metrics.run_took(begun.elapsed());
        let left = work.left(&end);
        let progress = work.progress();
        let ActiveRun { request, owned, unsaved, .. } = work;
        let continues = request.continued();
        RunResult {
            end,
            continuation: Continuation { claim: Some(owned.claim), continues, unsaved, progress },
            left,
        }
    }

    fn is_broadcast(&self) -> bool {
        self.job.audience.kind() == AudienceKind::Broadcast
    }

    /// What metrics say of the message.
    fn message(&self) -> (&Head, AudienceKind) {
        (&self.job.head, self.job.audience.kind())
    }

    fn claimant(&self) -> Claimant<'_> {
        let Self { context, job, plan, hold, .. } = *self;
        Claimant { context, job, plan, hold }
    }

    fn source(&self) -> DeviceSource<'_> {
        DeviceSource { context: self.context, job: self.job, ranges: self.ranges }
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
    request: ClaimRequest,
    owned: OwnedPartition,
    unsaved: Option<Unsaved>,
    /// Where it began to read.
    from: Checkpoint,
    /// The devices that it found from there on.
    found: u64,
    /// What was counted of the partition, if its messages know.
    done: Option<Counts>,
}

impl ActiveRun<'_> {
    /// How far a push to named devices is ([`PartitionTask::progress`]).
    ///
    /// [`PartitionTask::progress`]: push_model::envelope::PartitionTask::progress
    fn progress(&self) -> Option<Unsaved> {
        let OwnedPartition { state, leftovers, .. } = &self.owned;
        let done = self.done.as_ref().filter(|_| !self.run.is_broadcast())?;
        Some(Unsaved::from_nothing(state.checkpoint, leftovers.clone(), done.clone()))
    }

    /// What it leaves of the partition when it ends like this.
    fn left(&self, end: &RunEnd) -> Left {
        let Self { run, owned, from, found, .. } = self;
        match end {
            // The partition is another worker's, or nothing is known of it.
            RunEnd::Stale
            | RunEnd::Superseded
            | RunEnd::Contended
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
                    devices_left(run.ranges, ReadByRun { from, to, found }, &owned.leftovers);
                left.map_or(Left::Unknown, Left::Devices)
            }
        }
    }

    async fn run_batches(&mut self) -> RunEnd {
        let (context, job) = (self.run.context, self.run.job);
        let outgoing = context.outgoing(job);
        let pace = match context.pace(&job.app(), self.run.hold).await {
            Ok(pace) => pace,
            Err(error) => return error.into(),
        };
        // A job without slot ranges is a push to named devices. Everything in the task lane counts
        // as a broadcast, also named devices that are tried again.
        let class = match self.run.lane {
            Lane::Jobs if self.run.ranges.is_empty() => TrafficClass::Named,
            Lane::Jobs | Lane::Tasks | Lane::Isolated => TrafficClass::Broadcast,
        };
        let mut allowance = Allowance::new(pace, class);
        let deadline = context.deadline(&job.head);
        let ends_at = Instant::now() + context.run.time;
        loop {
            let now = context.now();
            let step = if self.owned.state.is_ended() {
                return RunEnd::Finished;
            } else if self.run.hold.is_stopping() {
                return RunEnd::Interrupted;
            } else if Instant::now() >= ends_at {
                return RunEnd::Yielded;
            } else if self.owned.recalled || now > deadline {
                self.write_off().await
            } else if now < allowance.next_at {
                return RunEnd::Paced(allowance.next_at);
            } else {
                let span = spans::batch(job, self.request.partition);
                let send = self.send_next(&outgoing, &mut allowance, deadline, &span);
                send.instrument(span.clone()).await
            };
            if let Err(end) = step {
                return end;
            }
        }
    }
}
