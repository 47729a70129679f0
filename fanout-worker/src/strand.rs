//! One turn on a strand: read a batch, send it, save counts and checkpoint, again.
//!
//! This is where the guarantees are made:
//! - A batch is sent first and saved after, and the save requires the checkpoint to be where the
//!   batch began. A crash repeats at most this one batch, and two workers on one strand cannot
//!   both count it.
//! - Whoever finds the checkpoint moved stops at once ([`TurnEnd::Overtaken`]).
//! - Devices to be tried later are handed on before the batch is saved, as a retry that the save
//!   opens; see [`crate::retry`].
//! - What is left when a message expires or is recalled is counted, not sent.
//! - A batch of an app with a pace is taken off the pace before it is sent. When the pace is used
//!   up the turn ends ([`TurnEnd::Paced`]): waiting is the queue's part, not a task slot's.
//!
//! A turn is bounded in time, so that broadcasts of all sizes take turns and no queue message
//! stays undecided for long.

use std::time::Duration;

use push_shared::{
    envelope::{BatchId, Head, Job},
    index::Slice,
    ledger::{
        Entry, FailReason, Outcomes, Position, Retried, RetryReason, Settled, Settlement, StrandId,
    },
    message::Audience,
    queue::Lane,
    targeting::Targeting,
    time::UnixMillis,
};
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::{
    core::Core,
    paces::{Allowance, taker},
    patience::GaveUp,
    plan,
    retry::Later,
    transport::{Outcome, Outgoing},
    verdict::TurnEnd,
};

/// Bounds of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnLimits {
    /// Devices that are sent to between two checkpoints: the most that a crash repeats.
    pub batch: usize,
    /// How long a turn lasts before the strand goes back to the end of its lane.
    pub time: Duration,
    /// How long after acceptance a push with time to live 0 ("now or never") is still "now".
    pub now_window: Duration,
}

impl TurnLimits {
    /// The last instant at which something of a message may be sent.
    pub(crate) fn deadline(&self, head: &Head) -> UnixMillis {
        if head.expires_at == head.accepted_at {
            head.accepted_at.plus(self.now_window)
        } else {
            head.expires_at
        }
    }
}

/// A part of a message's audience with a checkpoint of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strand<'a> {
    pub(crate) job: &'a Job,
    pub(crate) id: StrandId,
    /// Empty for named devices.
    pub(crate) slices: &'a [Slice],
    /// How often the devices of a retry were tried.
    pub(crate) attempt: u32,
    /// Where it is worked on: at once, or in its turn.
    pub(crate) lane: Lane,
}

/// Some devices of a strand, and the checkpoint behind them.
struct Batch {
    targets: Vec<push_shared::device::Target>,
    unknown: u64,
    next: Position,
}

/// What one step comes to.
#[derive(Default)]
struct Step {
    to: Position,
    /// Devices that were found to be meant.
    found: u64,
    outcomes: Outcomes,
    opens: Option<StrandId>,
    retried: Retried,
}

impl Strand<'_> {
    /// Works on the strand until its turn ends.
    ///
    /// `position` is the checkpoint and `recalled` whether the message was recalled, both as the
    /// ledger's entry said when the turn began.
    pub(crate) async fn turn(
        &self,
        core: &Core,
        mut position: Position,
        mut recalled: bool,
        stopping: &CancellationToken,
    ) -> TurnEnd {
        let outgoing = Outgoing {
            app_id: self.job.head.app_id.clone(),
            message_id: self.job.head.message_id,
            payload: self.job.payload.clone(),
            expires_at: self.job.head.expires_at,
        };
        let pace = match core.pace(&self.job.head.app_id, stopping).await {
            Ok(pace) => pace,
            Err(gave_up) => return gave_up.into(),
        };
        let mut allowance = Allowance::new(pace, taker(&self.job.audience, self.id));
        let ends_at = tokio::time::Instant::now() + core.limits.time;
        while position != Position::END {
            let step = if recalled || core.now() > self.deadline(core) {
                self.write_off(core, position, recalled, stopping).await
            } else if stopping.is_cancelled() {
                return TurnEnd::Interrupted;
            } else if core.now() < allowance.next_at {
                return TurnEnd::Paced(allowance.next_at);
            } else if tokio::time::Instant::now() >= ends_at {
                return TurnEnd::Yielded;
            } else {
                self.send_batch(core, &outgoing, &mut allowance, position, stopping).await
            };
            (position, recalled) = match step {
                Ok(saved) => saved,
                Err(end) => return end,
            };
        }
        TurnEnd::Finished
    }

    /// The last instant at which something may be sent.
    fn deadline(&self, core: &Core) -> UnixMillis {
        core.limits.deadline(&self.job.head)
    }

    async fn send_batch(
        &self,
        core: &Core,
        outgoing: &Outgoing,
        allowance: &mut Allowance,
        position: Position,
        stopping: &CancellationToken,
    ) -> Result<(Position, bool), TurnEnd> {
        let most = allowance.most(core.limits.batch);
        let batch = self.next_batch(core, position, most, stopping).await?;
        let in_time = || core.now() <= self.deadline(core);
        let devices = batch.targets.len();
        let granted =
            in_time() && allowance.take(core, &outgoing.app_id, devices, stopping).await?;
        if !granted || !in_time() {
            // The turn ends next, or what is left is counted: it expired while the index was asked.
            return Ok((position, false));
        }
        let started = tokio::time::Instant::now();
        let sent = core.transports.deliver(outgoing, &batch.targets, || core.now()).await;
        let Some(results) = sent else {
            return Err(self.put_off(core, position, devices, stopping).await);
        };
        core.metrics.batch_took(started.elapsed());
        let mut outcomes = Outcomes::default();
        let mut later = Later::default();
        let mut retried = Retried::new();
        if batch.unknown > 0 {
            outcomes.failed.insert(FailReason::UnknownClient, batch.unknown);
        }
        for (target, outcome) in batch.targets.iter().zip(results) {
            match outcome {
                Outcome::Sent => outcomes.sent += 1,
                Outcome::Expired => outcomes.expired += 1,
                Outcome::Failed(reason) => outcomes.fail(reason),
                Outcome::Later(..) if self.attempt + 1 >= core.retry_attempts => {
                    outcomes.fail(FailReason::RetriesExhausted);
                }
                Outcome::Later(reason, wanted) => {
                    *retried.entry(reason).or_default() += 1;
                    later.add(target.client_id.clone(), wanted);
                }
                Outcome::Gone => {
                    outcomes.fail(FailReason::Gone);
                    let app = &outgoing.app_id;
                    let removal = || core.index.remove_device(app, &target.client_id);
                    core.patience.try_until(stopping, removal).await.map_err(TurnEnd::from)?;
                }
            }
        }
        let opens = if later.is_empty() {
            None
        } else {
            let batch = BatchId { strand: self.id, from: position };
            Some(later.hand_on(core, self.job, batch, self.attempt, stopping).await?)
        };
        let found = batch.targets.len() as u64 + batch.unknown;
        let step = Step { to: batch.next, found, outcomes, opens, retried };
        self.settle(core, position, step, stopping).await
    }

    /// Notes that a batch was not decided because a transport is away; the checkpoint stays, and
    /// so whoever waits for the message sees why. Whether that was saved changes nothing else.
    async fn put_off(
        &self,
        core: &Core,
        position: Position,
        devices: usize,
        stopping: &CancellationToken,
    ) -> TurnEnd {
        let retried = Retried::from([(RetryReason::TransportAway, devices as u64)]);
        let step = Step { to: position, retried, ..Step::default() };
        match self.settle(core, position, step, stopping).await {
            Ok(_) => TurnEnd::TransportAway,
            Err(end) => end,
        }
    }

    /// Counts what is left up to the next checkpoint as expired or recalled.
    async fn write_off(
        &self,
        core: &Core,
        position: Position,
        recalled: bool,
        stopping: &CancellationToken,
    ) -> Result<(Position, bool), TurnEnd> {
        let (left, next) = match &*self.job.audience {
            Audience::Clients(clients) => {
                let done = usize::try_from(position.0).unwrap_or(usize::MAX);
                (clients.len().saturating_sub(done) as u64, Position::END)
            }
            Audience::All => self.count(core, position, &Targeting::everyone(), stopping).await?,
            Audience::Targeting(targeting) => {
                self.count(core, position, targeting, stopping).await?
            }
        };
        let mut outcomes = Outcomes::default();
        *(if recalled { &mut outcomes.recalled } else { &mut outcomes.expired }) = left;
        let step = Step { to: next, found: left, outcomes, ..Step::default() };
        self.settle(core, position, step, stopping).await
    }

    async fn count(
        &self,
        core: &Core,
        position: Position,
        targeting: &Targeting,
        stopping: &CancellationToken,
    ) -> Result<(u64, Position), TurnEnd> {
        let Some((part, _)) = plan::rest(self.slices, position) else {
            return Ok((0, Position::END));
        };
        let _place = self.place_at_index(core, stopping).await;
        let head = &self.job.head;
        let count = || core.index.count_matching(&head.app_id, part, targeting, head.accepted_at);
        let count = core.patience.try_until(stopping, count).await?.value;
        Ok((count, plan::advance(self.slices, position, None)))
    }

    /// Waits until this strand may ask the index.
    async fn place_at_index<'c>(
        &self,
        core: &'c Core,
        stopping: &CancellationToken,
    ) -> Option<SemaphorePermit<'c>> {
        match self.lane {
            Lane::Tasks => core.right_of_way.bulk(stopping).await,
            Lane::Jobs => None,
        }
    }

    async fn next_batch(
        &self,
        core: &Core,
        position: Position,
        most: usize,
        stopping: &CancellationToken,
    ) -> Result<Batch, TurnEnd> {
        let _place = self.place_at_index(core, stopping).await;
        if stopping.is_cancelled() {
            return Err(TurnEnd::Interrupted);
        }
        match &*self.job.audience {
            Audience::Clients(clients) => {
                let from = usize::try_from(position.0).unwrap_or(usize::MAX).min(clients.len());
                let to = from.saturating_add(most).min(clients.len());
                let head = &self.job.head;
                let part = &clients[from..to];
                let read = || core.index.targets(&head.app_id, part, head.accepted_at);
                let found = core.patience.try_until(stopping, read).await?.value;
                let targets: Vec<_> = found.into_iter().flatten().collect();
                let next = if to == clients.len() { Position::END } else { Position(to as u64) };
                Ok(Batch { unknown: (part.len() - targets.len()) as u64, targets, next })
            }
            Audience::All => {
                self.scan(core, position, &Targeting::everyone(), most, stopping).await
            }
            Audience::Targeting(targeting) => {
                self.scan(core, position, targeting, most, stopping).await
            }
        }
    }

    async fn scan(
        &self,
        core: &Core,
        position: Position,
        targeting: &Targeting,
        most: usize,
        stopping: &CancellationToken,
    ) -> Result<Batch, TurnEnd> {
        let Some((part, _)) = plan::rest(self.slices, position) else {
            return Ok(Batch { targets: Vec::new(), unknown: 0, next: Position::END });
        };
        let (app, by) = (&self.job.head.app_id, self.job.head.accepted_at);
        let scan = || core.index.scan(app, part, targeting, by, most);
        let page = core.patience.try_until(stopping, scan).await?.value;
        let next = plan::advance(self.slices, position, page.next);
        Ok(Batch { targets: page.items, unknown: 0, next })
    }

    /// Whether the checkpoint is here. A retry that has ended has none.
    fn is_at(&self, entry: &Entry, position: Position) -> bool {
        entry.position(self.id).unwrap_or(Position::END) == position
    }

    async fn settle(
        &self,
        core: &Core,
        from: Position,
        step: Step,
        stopping: &CancellationToken,
    ) -> Result<(Position, bool), TurnEnd> {
        let head = &self.job.head;
        let Step { to, found, outcomes, opens, retried } = step;
        // The devices of a retry were counted as targeted with the batch they come from.
        let targeted = if matches!(self.id, StrandId::Retry(_)) { 0 } else { found };
        let settlement =
            Settlement { strand: self.id, from, to, targeted, outcomes, opens, retried };
        let _place = self.place_at_index(core, stopping).await;
        // Stopping does not interrupt the first try: a batch that was sent is saved if it can be.
        let settle = || core.index.settle(&head.message_id, &settlement);
        let answer = core.patience.try_until(stopping, settle).await?;
        match answer.value {
            Settled::Saved { recalled } => {
                core.metrics.settled(&settlement.outcomes);
                Ok((to, recalled))
            }
            Settled::Overtaken if answer.unsure => {
                // A try whose answer was lost may be what moved the checkpoint.
                let entry = || core.index.entry(&head.app_id, &head.message_id);
                match core.patience.try_until(stopping, entry).await?.value {
                    Some(entry) if self.is_at(&entry, to) => {
                        core.metrics.settled(&settlement.outcomes);
                        Ok((to, entry.recalled_at.is_some()))
                    }
                    _ => Err(TurnEnd::Overtaken(Some(from))),
                }
            }
            Settled::Overtaken => Err(TurnEnd::Overtaken(Some(from))),
        }
    }
}

impl From<GaveUp> for TurnEnd {
    fn from(gave_up: GaveUp) -> Self {
        match gave_up {
            GaveUp::Interrupted => Self::Interrupted,
            GaveUp::Broken(what) => Self::Broken(what),
        }
    }
}
