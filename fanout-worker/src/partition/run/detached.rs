//! A run that goes on without its queue message, because some of its devices have no answer yet.
//!
//! A task is published in place of the queue message, delayed by the time after which a device that
//! is never answered has an outcome. In most cases the run has ended by then. A run that needs
//! longer, because its broker is slow, renews its claim in time: the task finds the new claim and
//! is delayed again. If the worker dies, the task finds the claim that it continues, and takes
//! over. Until then this run owns the partition, so it makes retries that are due and reads on at
//! the app's pace, as it would with its queue message.

use std::time::Duration;

use push_model::ledger::{Advance, AdvanceOutcome, Claim, Counts, PartitionState};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{ActiveRun, Continuation, OpenPartition, PartitionRun, RunResult};
use crate::{context::Context, control::retrier::Answer, partition::run_end::RunEnd};
use push_transports::WaitGuard;

/// A run after its queue message was settled, with the devices that it still waits for.
#[derive(Debug)]
pub(crate) struct DetachedRun {
    partition: OpenPartition,
    /// When the run was detached.
    since: Instant,
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

/// Returns the interval at which a detached run renews its claim: less than the delay of the task
/// beside it.
fn renewal_interval(context: &Context) -> Duration {
    context.transports.longest_silence() * 3 / 4
}

impl PartitionRun<'_> {
    /// Goes on with a run that was detached from its queue message.
    pub(crate) async fn finish(&self, detached: DetachedRun) -> RunResult {
        let DetachedRun { partition, since, stopping: _, room: _room } = detached;
        let mut active = ActiveRun::new(self, partition);
        active.renews_at = Some(since + renewal_interval(self.context));
        let end = active.run_batches().await;
        active.into_result(end)
    }
}

impl ActiveRun<'_> {
    /// Detaches the run from its queue message, if there is room.
    pub(super) fn detach(&mut self, end: RunEnd) -> RunEnd {
        let waits = matches!(
            end,
            RunEnd::RetryDue(_) | RunEnd::Yielded | RunEnd::Paced(_) | RunEnd::TransportUnavailable
        );
        if self.room.is_none() || !waits {
            self.room = None;
            return end;
        }
        RunEnd::Detached(self.run.context.detached_until())
    }

    /// Renews the claim of a detached run, which delays the task beside it once more. Returns false
    /// if the partition is in another state than before.
    pub(super) async fn renew_claim(&mut self) -> Result<bool, RunEnd> {
        let (context, job) = (self.run.context, self.run.job);
        self.renews_at = Some(Instant::now() + renewal_interval(context));
        let from = self.owned.state;
        let claim = Claim { epoch: self.owned.claim.epoch.saturating_add(1), ..self.owned.claim };
        let to = PartitionState { claim: Some(claim), ..from };
        let step = Advance {
            dedup_nonce: job.dedup_nonce,
            partition: self.request.partition,
            from,
            to,
            leftovers: None,
            counts: Counts::default(),
            keep_until: None,
        };
        let (message, app) = (&job.head.message_id, job.app());
        let advance = || context.ledger.advance(&app, message, &step);
        let renewed = match self.run.ask_store(advance).await {
            Ok(Answer { value: AdvanceOutcome::Saved { recalled }, asked_at }) => {
                self.request.record_claim(&claim);
                self.owned.claim = claim;
                self.owned.state = to;
                self.owned.recalled = recalled;
                self.owned.checked_at = asked_at;
                self.note_permission();
                Ok(())
            }
            Ok(_) => self.reclaim(Some(to)).await,
            Err(error) => Err(error.into()),
        };
        self.goes_on(renewed, (claim, to))
    }

    pub(super) fn into_result(self, end: RunEnd) -> RunResult {
        let (remaining, progress) = (self.remaining(&end), self.progress());
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
            Box::new(DetachedRun { partition, since: Instant::now(), stopping, room })
        });
        let continuation = Continuation { claim, continues, unsaved, progress };
        RunResult { end, continuation, remaining, waits_for, detached }
    }
}
