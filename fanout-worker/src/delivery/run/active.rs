//! The loop of a run from batch to batch.
//!
//! A run whose partition is read, or must not be read on now, may still have a tail. It then waits for
//! its tail, for the next retry that is due and for the app's pace together: a device that is never
//! answered holds up no other. While it only waits, other partitions have its slot.

use std::{pin::pin, sync::Arc, time::Duration};

use push_model::{
    device::TransportKind,
    envelope::Unsaved,
    ledger::{Checkpoint, Counts},
    pace::TrafficClass,
    time::UnixMillis,
};
use push_queue::Lane;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep},
};
use tracing::Instrument as _;

use super::{OpenBatches, PartitionRun};
use crate::{
    broadcasts::Left,
    control::{pace::Allowance, slots::TaskSlot},
    delivery::{
        claim::{ClaimRequest, OwnedPartition},
        left::{ReadByRun, devices_left},
        run_end::RunEnd,
    },
    spans,
};
use push_transports::{Outgoing, Permission};

/// How long a run of the job lane waits for its tail with its queue message.
const NAMED_PATIENCE: Duration = Duration::from_secs(1);

/// A run whose tail is never empty begins no batch after this time, far below the time after which RabbitMQ
/// takes its message back.
const LONGEST_WITH_TAIL: Duration = Duration::from_secs(60);

/// A partition that a run has claimed, and what is under way of it.
#[derive(Debug)]
pub(super) struct OpenPartition {
    pub(super) outgoing: Arc<Outgoing>,
    /// What the transports ask before they write more.
    pub(super) permission: Arc<Permission>,
    pub(super) request: ClaimRequest,
    /// Its leftovers are those beside the tail.
    pub(super) owned: OwnedPartition,
    /// What was counted of the partition, if its messages know.
    pub(super) done: Option<Counts>,
    /// What was handed over and is not settled.
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
    /// Where it began to read.
    from: Checkpoint,
    /// The devices that it found from there on.
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
    /// How far a push to named devices is ([`PartitionTask::progress`]).
    ///
    /// [`PartitionTask::progress`]: push_model::envelope::PartitionTask::progress
    pub(super) fn progress(&self) -> Option<Unsaved> {
        let OwnedPartition { state, leftovers, .. } = &self.owned;
        let done = self.done.as_ref().filter(|_| !self.run.is_broadcast())?;
        let leftovers = leftovers.iter().chain(self.open.leftovers()).cloned().collect();
        Some(Unsaved::from_nothing(state.checkpoint, leftovers, done.clone()))
    }

    /// What it leaves of the partition when it ends like this.
    pub(super) fn left(&self, end: &RunEnd) -> Left {
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
            | RunEnd::IndexUnavailable
            | RunEnd::Broken(_) => return end,
            RunEnd::Yielded
            | RunEnd::TransportUnavailable
            | RunEnd::Paced(_)
            | RunEnd::RetryDue(_)
            | RunEnd::Interrupted => {}
        }
        if !self.waits_here() && !self.open.is_empty() {
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

    /// Returns true if it goes on beside its tail where it is, rather than without its queue message.
    fn waits_here(&self) -> bool {
        self.renews_at.is_some() || self.run.lane != Lane::Jobs
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
                // The tail has to be waited for here, so other partitions get their turn meanwhile.
                if let Some(slot) = self.run.slot {
                    slot.leave();
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

    /// Waits for this time, or until something of the tail is answered.
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

    /// Waits for a slot, and saves meanwhile what is answered of the tail.
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

/// Until when a transport that was unavailable is not tried again beside a tail.
#[derive(Debug, Default)]
struct Unavailable {
    until: UnixMillis,
    tries: u32,
}

impl Unavailable {
    /// Notes that it is unavailable, if that was not known. Returns until when it is left alone.
    fn note(&mut self, now: UnixMillis, delay: impl FnOnce(u32) -> Duration) -> UnixMillis {
        if now >= self.until {
            self.until = now.plus(delay(self.tries));
            self.tries = self.tries.saturating_add(1);
        }
        self.until
    }
}
