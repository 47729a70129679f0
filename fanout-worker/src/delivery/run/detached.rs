//! A run that goes on without its queue message, because some of its devices are not answered.
//!
//! The task that was published in its place is delivered at a time that is known before. Until then
//! this run owns the partition, so it tries again what is due and reads on at the app's pace, as it
//! would with its queue message. Whatever it begins has ended when the task comes.

use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{ActiveRun, OpenPartition, PartitionRun};
use crate::delivery::run_end::{Continuation, RunEnd, RunResult};
use push_transports::WaitGuard;

/// What a run left open, to be waited for without its queue message.
#[derive(Debug)]
pub(crate) struct DetachedRun {
    partition: OpenPartition,
    /// What begins until then has ended before the task is delivered that was published.
    begins_until: Instant,
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

impl PartitionRun<'_> {
    /// Goes on with a run that was detached from its queue message.
    pub(crate) async fn finish(&self, detached: DetachedRun) -> RunResult {
        let DetachedRun { partition, begins_until, stopping: _, room: _room } = detached;
        let begins_for = begins_until.saturating_duration_since(Instant::now());
        let mut work = ActiveRun::new(self, partition, begins_for);
        work.is_detached = true;
        let end = work.run_batches().await;
        work.into_result(end)
    }
}

impl ActiveRun<'_> {
    /// If there is room for what is open, the run goes on without the queue message. The task that is
    /// published then continues after twice the longest time that a transport takes: the run begins
    /// batches for half of it, and waits for them in the other half.
    pub(super) fn detach(&mut self, end: RunEnd) -> RunEnd {
        let waits = matches!(
            end,
            RunEnd::RetryDue(_) | RunEnd::Yielded | RunEnd::Paced(_) | RunEnd::TransportUnavailable
        );
        if self.room.is_none() || !waits {
            self.room = None;
            return end;
        }
        let longest = self.run.context.transports.longest_delivery();
        self.begins_until = Instant::now() + longest;
        RunEnd::Detached(self.run.context.now().plus(longest).plus(longest))
    }

    pub(super) fn into_result(self, end: RunEnd) -> RunResult {
        let (left, progress) = (self.left(&end), self.progress());
        let begins_until = self.begins_until;
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
            let partition = OpenPartition { outgoing, permission, request, owned, done, open };
            Box::new(DetachedRun { partition, begins_until, stopping, room })
        });
        let continuation = Continuation { claim, continues, unsaved, progress };
        RunResult { end, continuation, left, waits_for, detached }
    }
}
