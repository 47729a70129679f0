//! The loop of a run from batch to batch.
//!
//! A run may still have a tail when its partition is read to the end, or may not be read on yet. It
//! then waits simultaneously for its tail, for the next retry that is due and for the app's pace,
//! so that a device that is never answered delays no other. While it only waits, other partitions
//! use its slot.

use std::{pin::pin, sync::Arc, time::Duration};

use push_model::{
    device::TransportKind,
    envelope::Unsaved,
    ledger::{Checkpoint, Counts},
    pace::TrafficClass,
    time::UnixMillis,
};
use push_queue::WorkLane;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep},
};
use tracing::Instrument as _;

use super::{OpenBatches, PartitionRun};
use crate::{
    control::{pace::Allowance, slots::TaskSlot},
    partition::{
        claim::{ClaimRequest, OwnedPartition},
        remaining::{ReadByRun, Remaining, remaining_devices},
        run_end::RunEnd,
    },
    spans,
};
use push_transports::{Outgoing, Permission};

/// Time for which a run of the job lane waits for its tail while it holds its queue message.
const NAMED_PATIENCE: Duration = Duration::from_secs(1);

/// A run whose tail is never empty begins no batch after this time. It is far below the time after
/// which RabbitMQ takes its message back.
const LONGEST_WITH_TAIL: Duration = Duration::from_secs(60);

/// A partition that a run has claimed, and its batches that are under way.
#[derive(Debug)]
pub(super) struct OpenPartition {
    pub(super) outgoing: Arc<Outgoing>,
    /// The permission that the transports check before they write more.
    pub(super) permission: Arc<Permission>,
    pub(super) request: ClaimRequest,
    /// Its leftovers are those beside the tail.
    pub(super) owned: OwnedPartition,
    /// The counts of the partition so far, if its messages know them.
    pub(super) done: Option<Counts>,
    /// The batches that were handed over and are not settled.
    pub(super) open: OpenBatches,
}

/// A run that has claimed its partition.
pub(super) struct ActiveRun<'a> {
    pub(super) run: &'a PartitionRun<'a>,
    pub(super) outgoing: Arc<Outgoing>,
    pub(super) permission: Arc<Permission>,
    pub(super) request: ClaimRequest,
    pub(super) owned: OwnedPartition,
    pub(super) open: OpenBatches,
    pub(super) unsaved: Option<Unsaved>,
    /// The checkpoint at which it began to read.
    from: Checkpoint,
    /// The number of devices that it found from there on.
    pub(super) found: u64,
    pub(super) done: Option<Counts>,
    /// The transport of the first device that is to be tried again.
    pub(super) waits_for: Option<TransportKind>,
    /// Beside a tail, no batch begins after this.
    begins_until: Instant,
    /// When it renews its claim; none while it has its queue message.
    pub(super) renews_at: Option<Instant>,
    /// Room to wait for the tail without the queue message.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

impl<'a> ActiveRun<'a> {
    pub(super) fn new(run: &'a PartitionRun<'a>, partition: OpenPartition) -> Self {
        let OpenPartition { outgoing, permission, request, owned, done, open } = partition;
        Self {
            run,
            outgoing,
            permission,
            request,
            from: owned.state.checkpoint,
            owned,
            open,
            unsaved: None,
            found: 0,
            done,
            waits_for: None,
            begins_until: Instant::now() + LONGEST_WITH_TAIL,
            renews_at: None,
            room: None,
        }
    }
}

impl ActiveRun<'_> {
    /// Returns the progress of a push to named devices ([`PartitionTask::progress`]).
    ///
    /// [`PartitionTask::progress`]: push_model::envelope::PartitionTask::progress
    pub(super) fn progress(&self) -> Option<Unsaved> {
        let OwnedPartition { state, leftovers, .. } = &self.owned;
        let done = self.done.as_ref().filter(|_| !self.run.is_broadcast())?;
        let leftovers = leftovers.iter().chain(self.open.leftovers()).cloned().collect();
        Some(Unsaved::from_nothing(state.checkpoint, leftovers, done.clone()))
    }

    /// Returns the rest of the partition that it leaves when it ends like this.
    pub(super) fn remaining(&self, end: &RunEnd) -> Remaining {
        let Self { run, owned, from, found, .. } = self;
        match end {
            // The partition is another worker's, or nothing is known of it.
            RunEnd::Stale
            | RunEnd::Superseded
            | RunEnd::Contended
            | RunEnd::Crowded
            | RunEnd::Deferred(_)
            | RunEnd::StoreUnavailable
            | RunEnd::Broken(_) => Remaining::Unknown,
            // A broadcast that is sent from the job lane is not listed.
            RunEnd::Finished if run.lane == WorkLane::Jobs => Remaining::Unknown,
            RunEnd::Finished => Remaining::Devices(0),
            _ if owned.recalled => Remaining::Recalled,
            _ => {
                let (from, to, found) = (*from, owned.state.checkpoint, *found);
                let read = ReadByRun { from, to, found };
                let devices = remaining_devices(run.ranges(), read, &owned.leftovers);
                devices.map_or(Remaining::Unknown, Remaining::Devices)
            }
        }
    }

    /// Works on the partition until the run ends, and then waits for its tail.
    pub(super) async fn run_batches(&mut self) -> RunEnd {
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
            | RunEnd::StoreUnavailable
            | RunEnd::Broken(_) => return end,
            RunEnd::Yielded
            | RunEnd::TransportUnavailable
            | RunEnd::Paced(_)
            | RunEnd::RetryDue(_)
            | RunEnd::Interrupted => {}
        }
        if !self.waits_here() && !self.open.is_empty() {
            // A slow transport does not hold up an envelope of the job lane, if there is room for a
            // detached run.
            self.room = self.run.context.detached.room();
        }
        let patience = self.room.is_some().then_some(NAMED_PATIENCE);
        let mut end = self.end_with_tail(end, patience).await;
        if self.run.hold.is_stopping() && self.room.take().is_some() && !self.open.is_empty() {
            // The answers would be lost once the worker has stopped, so the run waits for them now.
            end = self.end_with_tail(end, None).await;
        }
        if self.open.is_empty() {
            self.room = None;
        }
        end
    }

    /// Returns true if it waits for its tail here, rather than without its queue message.
    fn waits_here(&self) -> bool {
        self.renews_at.is_some() || self.run.lane != WorkLane::Jobs
    }

    /// Waits for the tail, for at most this time, and returns how the run ends then.
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

    async fn next_batches(&mut self) -> RunEnd {
        let (context, job) = (self.run.context, self.run.job);
        let pace = match context.pace(&job.app(), self.run.hold).await {
            Ok(pace) => pace,
            Err(error) => return error.into(),
        };
        // A job without slot ranges is a push to named devices. Everything in the task lane counts
        // as a broadcast, also named devices that are tried again.
        let class = match self.run.lane {
            WorkLane::Jobs if self.run.ranges().is_empty() => TrafficClass::Named,
            WorkLane::Jobs | WorkLane::Tasks => TrafficClass::Broadcast,
        };
        let mut allowance = Allowance::new(pace, class);
        let deadline = context.deadline(&job.head);
        let mut ends_at = Instant::now() + context.run.time;
        let mut unavailable = Unavailable::default();
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
                if self.open.is_empty() || Instant::now() > self.begins_until {
                    return RunEnd::Yielded;
                }
                // The run has to wait for its tail here, so other partitions use its slot
                // meanwhile.
                if let Some(slot) = self.run.slot {
                    slot.leave();
                }
                ends_at = Instant::now() + context.run.time;
                continue;
            } else if is_over && !self.open.is_empty() && self.run.lane == WorkLane::Jobs {
                // The tail is waited for without the queue message, if there is room.
                return RunEnd::RetryDue(now);
            } else if is_over && !self.open.is_empty() {
                // Devices that were handed over are counted by their answers. The rest is written
                // off afterwards.
                self.finish_tail(deadline, None).await
            } else if is_over {
                self.write_off().await
            } else if now < unavailable.until {
                Err(RunEnd::TransportUnavailable)
            } else if now < allowance.next_at {
                Err(RunEnd::Paced(allowance.next_at))
            } else if let Some(slot) = self.run.slot
                && !slot.is_held()
            {
                let entered = self.enter_again(slot, deadline).await;
                ends_at = Instant::now() + context.run.time;
                entered
            } else {
                let span = spans::batch(job, self.request.partition);
                let send = self.send_next(&mut allowance, deadline, &span);
                send.instrument(span.clone()).await
            };
            let Err(end) = step else { continue };
            let until = match end {
                RunEnd::RetryDue(time) | RunEnd::Paced(time) => time,
                RunEnd::TransportUnavailable => {
                    unavailable.note(now, |tries| context.retry.delay(tries, context.jitter()))
                }
                end => return end,
            };
            let goes_on = self.waits_here() && Instant::now() <= self.begins_until;
            if self.open.is_empty() || !goes_on {
                return end;
            }
            if let Err(end) = self.wait_beside_tail(until.since(now)).await {
                return end;
            }
        }
    }

    /// Waits for this time, or until a device of the tail is answered.
    async fn wait_beside_tail(&mut self, time: Duration) -> Result<(), RunEnd> {
        if let Some(slot) = self.run.slot {
            slot.leave();
        }
        let stopping = self.run.hold.stopping().clone();
        let over = pin!(async move {
            tokio::select! {
                () = sleep(time) => {}
                () = stopping.cancelled() => {}
            }
        });
        self.await_tail(over).await.map(drop)
    }

    /// Waits for a slot, and saves the answers of the tail meanwhile.
    async fn enter_again(&mut self, slot: &TaskSlot, deadline: UnixMillis) -> Result<(), RunEnd> {
        let stopping = self.run.hold.stopping().clone();
        let mut over = pin!(async move {
            tokio::select! {
                () = slot.enter_again() => {}
                () = stopping.cancelled() => {}
            }
        });
        while !self.await_tail(over.as_mut()).await? {
            self.settle_tail(deadline).await?;
        }
        Ok(())
    }
}

/// Pauses before an unavailable transport is tried again beside a tail.
#[derive(Debug, Default)]
struct Unavailable {
    until: UnixMillis,
    tries: u32,
}

impl Unavailable {
    /// Notes that it is unavailable, if that was not known. Returns when to try it again.
    fn note(&mut self, now: UnixMillis, delay: impl FnOnce(u32) -> Duration) -> UnixMillis {
        if now >= self.until {
            self.until = now.plus(delay(self.tries));
            self.tries = self.tries.saturating_add(1);
        }
        self.until
    }
}
