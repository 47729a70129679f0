//! One run on a partition: read a batch, send it, save it, again.
//!
//! This is where the guarantees are made:
//! - The partition is claimed before the first device is sent to ([`super::claim`]). A batch is
//!   sent first and saved after, and the save requires that nothing changed the partition since
//!   the claim. A crash repeats at most this one batch, and of two workers on one partition one
//!   saves; the other stops before it sends anything more.
//! - A device without an outcome becomes a leftover of its partition, in the step that saves the
//!   others of its batch ([`super::sorting`], [`super::leftovers`]).
//! - A batch is handed to a transport only if the message was known not to be recalled less than
//!   [`RECALL_CHECK`] ago.
//! - What is left when a message expires or is recalled is counted, not sent.
//! - What was sent and could not be saved goes on with the partition ([`Resume::unsaved`]).
//! - A batch of an app with a pace is taken off the pace before it is sent. When the pace is used
//!   up the run ends ([`RunEnd::Paced`]): waiting is the queue's part, not a task slot's.
//!
//! A run is bounded in time, so that broadcasts of all sizes take turns and no queue message stays
//! unsettled for long.

use push_index::IndexError;
use push_model::{
    envelope::{Job, Unsaved},
    ledger::{
        Advance, Advanced, Checkpoint, Claim, Counts, Earlier, FailReason, Leftover, Outcomes,
        PartitionState, PartitionView, Plan, RECALL_CHECK, leftover,
    },
    pace::Taker,
    slots::SlotRange,
    time::UnixMillis,
};
use push_queue::Lane;
use tokio::time::Instant;
use tracing::warn;

use super::{
    batch::{Batch, Source},
    claim::{Claiming, Owned, Ticket},
    leftovers::{self, Next},
    sorting::{Rules, Sorted, Tried, sort},
};
use crate::{
    context::Context,
    control::{
        hold::Hold,
        pace::Allowance,
        waiting::{Answer, GaveUp},
    },
    transport::Outgoing,
};

/// How often an index that answers slowly is asked whether a message is recalled, before the
/// partition is put off.
const LOOKS: u32 = 3;

/// How a run on a partition ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The partition is worked off.
    Finished,
    /// Another queue message continues the partition: this one is a stale copy.
    Stale,
    /// The queue has given this message to another consumer, which goes on.
    Superseded,
    /// Others claim the partition again and again.
    Contended,
    /// The run's time is over and the partition is not; others have their turn now.
    Yielded,
    /// A transport is away; nothing was sent since the checkpoint.
    TransportAway,
    /// The index was away for as long as a message may be held.
    IndexAway,
    /// The app's pace is used up until then.
    Paced(UnixMillis),
    /// Devices are to be tried again then, and nothing is to be done before.
    Waiting(UnixMillis),
    /// Another copy of the message was accepted before and may end unsent: to be looked at again
    /// then, also when this copy is over.
    Behind(UnixMillis),
    /// The worker is stopping.
    Interrupted,
    /// It can never be worked off, and why.
    Broken(String),
}

impl From<GaveUp> for RunEnd {
    fn from(gave_up: GaveUp) -> Self {
        match gave_up {
            GaveUp::Interrupted => Self::Interrupted,
            GaveUp::TooLong => Self::IndexAway,
            GaveUp::Broken(what) => Self::Broken(what),
        }
    }
}

/// Where the next message of the partition continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resume {
    /// The claim to continue; none if this run has none: the message goes on as it is.
    pub(crate) claim: Option<Claim>,
    /// Whose claims the next message continues besides.
    pub(crate) continues: Vec<Earlier>,
    /// What was sent and is not saved.
    pub(crate) unsaved: Option<Unsaved>,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) end: RunEnd,
    pub(crate) resume: Resume,
}

/// The first batch of a partition, which was sent and is not saved.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) owned: Owned,
    pub(crate) batch: Batch,
    pub(crate) sorted: Sorted,
}

impl Sent {
    /// The step that saves it if it was all of the partition, and each device has its outcome.
    pub(crate) fn last_step(&self, copy: u64) -> Option<Advance> {
        let is_all = self.batch.next == Checkpoint::End && self.owned.leftovers.is_empty();
        (is_all && self.sorted.is_final()).then(|| Advance {
            copy,
            partition: 0,
            from: self.owned.state,
            to: PartitionState::ENDED,
            leftovers: None,
            counts: self.sorted.counts(&self.batch),
            keep_until: None,
        })
    }
}

/// A partition to be worked on.
pub(crate) struct PartitionRun<'a> {
    pub(crate) context: &'a Context,
    pub(crate) job: &'a Job,
    pub(crate) plan: Option<&'a Plan>,
    /// Empty for named devices.
    pub(crate) slices: &'a [SlotRange],
    /// Where it is worked on: at once, or in its turn.
    pub(crate) lane: Lane,
    /// What is left counts as unrecorded.
    pub(crate) forgotten: bool,
    /// Its devices were counted as targeted before.
    pub(crate) beyond_plan: bool,
    /// The queue message.
    pub(crate) hold: &'a Hold<'a>,
}

impl PartitionRun<'_> {
    /// Claims the partition and works on it until the run ends.
    pub(crate) async fn run(
        &self,
        mut ticket: Ticket,
        known: Option<(PartitionView, Instant)>,
    ) -> Run {
        match self.claiming().claim(&mut ticket, known).await {
            Ok(owned) => self.run_owned(ticket, owned).await,
            Err(end) => {
                let unsaved = ticket.unsaved.take();
                Run { end, resume: Resume { claim: None, continues: ticket.handed_on(), unsaved } }
            }
        }
    }

    /// Works on a partition that is claimed already.
    pub(crate) async fn run_owned(&self, ticket: Ticket, owned: Owned) -> Run {
        self.run_from(ticket, owned, None).await
    }

    /// Goes on with a partition that is claimed, and of which a batch was sent.
    pub(crate) async fn run_sent(&self, ticket: Ticket, sent: Sent) -> Run {
        let Sent { owned, batch, sorted } = sent;
        self.run_from(ticket, owned, Some((batch, sorted))).await
    }

    async fn run_from(
        &self,
        mut ticket: Ticket,
        owned: Owned,
        sent: Option<(Batch, Sorted)>,
    ) -> Run {
        ticket.unsaved = None;
        ticket.has_claimed(&owned.claim);
        let mut work = Working { run: self, ticket, owned, unsaved: None };
        work.count_claim();
        let saved = match sent {
            Some((batch, sorted)) => work.settle_batch(batch, None, sorted).await,
            None => Ok(()),
        };
        let end = match saved {
            Ok(()) => work.until_end().await,
            Err(end) => end,
        };
        let Working { ticket, owned, unsaved, .. } = work;
        let continues = if ticket.tried { ticket.handed_on() } else { Vec::new() };
        Run { end, resume: Resume { claim: Some(owned.claim), continues, unsaved } }
    }

    fn claiming(&self) -> Claiming<'_> {
        let Self { context, job, plan, hold, .. } = *self;
        Claiming { context, job, plan, hold }
    }

    fn source(&self) -> Source<'_> {
        Source { context: self.context, job: self.job, slices: self.slices }
    }

    /// Asks the index until it answers, when it is this partition's turn to ask.
    async fn ask<T, F>(&self, step: impl Fn() -> F) -> Result<T, RunEnd>
    where
        F: Future<Output = Result<T, IndexError>>,
    {
        if self.hold.is_stopping() {
            return Err(RunEnd::Interrupted);
        }
        Ok(self.in_turn(step).await?.value)
    }

    /// Tries a step until the index answers, each time when it is this partition's turn.
    async fn in_turn<T, F>(&self, step: impl Fn() -> F) -> Result<Answer<T>, GaveUp>
    where
        F: Future<Output = Result<T, IndexError>>,
    {
        let turn = || async {
            match self.lane {
                Lane::Tasks => self.context.priority.bulk(self.hold.stopping()).await,
                Lane::Jobs => None,
            }
        };
        self.context.waiting.for_index_in_turn(self.hold, turn, step).await
    }
}

/// A run whose partition is claimed.
struct Working<'a> {
    run: &'a PartitionRun<'a>,
    ticket: Ticket,
    owned: Owned,
    unsaved: Option<Unsaved>,
}

/// Devices that are sent to together, and what the partition is behind them.
struct Step {
    batch: Batch,
    tried: Tried,
    /// The leftovers without those of the batch; none if the batch is none of them.
    others: Option<Vec<Leftover>>,
}

impl Working<'_> {
    async fn until_end(&mut self) -> RunEnd {
        let (context, job) = (self.run.context, self.run.job);
        let outgoing = context.outgoing(job);
        let pace = match context.pace(&job.app(), self.run.hold).await {
            Ok(pace) => pace,
            Err(gave_up) => return gave_up.into(),
        };
        // The devices of a task may come from a broadcast, those of a job that is one partition
        // and was never put off are named.
        let taker = match self.run.lane {
            Lane::Jobs if self.run.slices.is_empty() => Taker::Named,
            Lane::Jobs | Lane::Tasks => Taker::Broadcast,
        };
        let mut allowance = Allowance::new(pace, taker);
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
                self.send_next(&outgoing, &mut allowance, deadline).await
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn send_next(
        &mut self,
        outgoing: &Outgoing,
        allowance: &mut Allowance,
        deadline: UnixMillis,
    ) -> Result<(), RunEnd> {
        let context = self.run.context;
        let most = allowance.most(context.run.batch);
        let step = self.next_step(most).await?;
        let devices = step.batch.targets.len();
        let (app, hold) = (&self.run.job.app(), self.run.hold);
        let engines = (&*context.index, &context.clock);
        let granted = context.now() <= deadline
            && allowance.take(app, devices, engines, &context.waiting, hold).await?;
        // The partition is not another worker's, and the message not recalled, as of just now.
        if !granted || !self.is_fresh().await? || context.now() > deadline {
            return Ok(());
        }
        let started = Instant::now();
        let Step { batch, tried, others } = step;
        let answers = context.transports.deliver(outgoing, &batch.targets, || context.now()).await;
        context.metrics.batch_took(started.elapsed());
        let sorted = sort(&batch.targets, answers, tried, &Rules::now(context, deadline));
        self.settle_batch(batch, others, sorted).await
    }

    /// Saves what became of a batch that was sent.
    async fn settle_batch(
        &mut self,
        batch: Batch,
        others: Option<Vec<Leftover>>,
        sorted: Sorted,
    ) -> Result<(), RunEnd> {
        if sorted.all_away {
            // Nothing was decided. Whoever waits for the message sees why.
            let counts = Counts { retried: sorted.retried, ..Counts::default() };
            self.save(self.owned.state.checkpoint, counts, None).await?;
            return Err(RunEnd::TransportAway);
        }
        self.save_batch(batch, others, sorted).await
    }

    /// The devices that are next: leftovers that are due, or devices that were not tried yet.
    async fn next_step(&self, most: usize) -> Result<Step, RunEnd> {
        let context = self.run.context;
        let Owned { state, leftovers, .. } = &self.owned;
        let at_end = state.checkpoint == Checkpoint::End;
        let backlog = context.retry_limits.backlog;
        match leftovers::next(leftovers, context.now(), at_end, backlog, most) {
            Next::At(time) => Err(RunEnd::Waiting(time)),
            Next::Read => {
                let source = self.run.source();
                let batch = self.run.ask(|| source.read(state.checkpoint, most)).await?;
                Ok(Step { batch, tried: Tried::default(), others: None })
            }
            Next::Retry { index, devices } => {
                let mut others = leftovers.clone();
                let tried = others.get(index).map_or_else(Tried::default, |leftover| Tried {
                    attempt: leftover.attempt,
                    unanswered: leftover.unanswered,
                });
                let clients = leftovers::take(&mut others, index, devices);
                let source = self.run.source();
                let (targets, failed) = self.run.ask(|| source.find(&clients)).await?;
                let batch = Batch { targets, failed, next: state.checkpoint };
                Ok(Step { batch, tried, others: Some(others) })
            }
        }
    }

    /// Whether the partition is as it was, asking again if that was learnt too long ago. False if
    /// it is not, or the message is recalled.
    async fn is_fresh(&mut self) -> Result<bool, RunEnd> {
        for _ in 0..LOOKS {
            if self.owned.checked_at.elapsed() <= RECALL_CHECK {
                return Ok(true);
            }
            let before = (self.owned.claim, self.owned.state);
            self.own_again().await?;
            if self.owned.recalled || before != (self.owned.claim, self.owned.state) {
                return Ok(false);
            }
        }
        // Each answer was too old when it came.
        Err(RunEnd::IndexAway)
    }

    async fn save_batch(
        &mut self,
        batch: Batch,
        others: Option<Vec<Leftover>>,
        sorted: Sorted,
    ) -> Result<(), RunEnd> {
        let (context, hold) = (self.run.context, self.run.hold);
        let Counts { targeted: found, outcomes, retried } = sorted.counts(&batch);
        let Sorted { leftovers: more, gone, .. } = sorted;
        let is_retry = others.is_some();
        let leftovers = match (others, more.is_empty()) {
            (None, true) => None,
            (others, _) => {
                let mut all = others.unwrap_or_else(|| self.owned.leftovers.clone());
                more.into_iter().for_each(|more| leftovers::add(&mut all, more));
                Some(all)
            }
        };
        let targeted = if is_retry || self.run.beyond_plan { 0 } else { found };
        let saved = self.save(batch.next, Counts { targeted, outcomes, retried }, leftovers).await;
        // Of a step that ended the partition the answer may have been lost.
        if !matches!(saved, Ok(()) | Err(RunEnd::Finished)) {
            return saved;
        }
        // After the save, whose devices must not wait for it. One that stays is found gone by the
        // next message.
        let app = self.run.job.app();
        for client in &gone {
            let removal = || context.index.remove_device(&app, client);
            context.waiting.for_index(hold, removal).await?;
        }
        saved
    }

    /// Counts what is left up to the next checkpoint as expired, recalled or unrecorded.
    async fn write_off(&mut self) -> Result<(), RunEnd> {
        let source = self.run.source();
        let from = self.owned.state.checkpoint;
        let count = || source.count(from);
        let (left, next) = match self.run.in_turn(count).await {
            Ok(answer) => answer.value,
            // What the index holds of the app can never be read. The entry closes all the same.
            Err(GaveUp::Broken(reason)) if self.run.forgotten => {
                warn!(message_id = %self.run.job.head.message_id, reason, "closed without a count");
                (0, Checkpoint::End)
            }
            Err(gave_up) => return Err(gave_up.into()),
        };
        let all = left + leftover::count(&self.owned.leftovers);
        let mut outcomes = Outcomes::default();
        if self.owned.recalled {
            outcomes.recalled = all;
        } else if self.run.forgotten && all > 0 {
            outcomes.failed.insert(FailReason::Unrecorded, all);
        } else {
            outcomes.expired = all;
        }
        let targeted = if self.run.beyond_plan { 0 } else { left };
        let leftovers = (!self.owned.leftovers.is_empty()).then(Vec::new);
        self.save(next, Counts { targeted, outcomes, ..Counts::default() }, leftovers).await
    }

    /// Saves what was counted, and the checkpoint behind it.
    async fn save(
        &mut self,
        checkpoint: Checkpoint,
        counts: Counts,
        leftovers: Option<Vec<Leftover>>,
    ) -> Result<(), RunEnd> {
        let from = self.owned.state;
        let none_left = leftovers.as_ref().unwrap_or(&self.owned.leftovers).is_empty();
        let to = if checkpoint == Checkpoint::End && none_left {
            PartitionState::ENDED
        } else {
            PartitionState { step: from.step.saturating_add(1), checkpoint, ..from }
        };
        let partition = self.ticket.partition;
        let copy = self.run.job.copy;
        let step = Advance { copy, partition, from, to, leftovers, counts, keep_until: None };
        self.unsaved = Some(Unsaved {
            from,
            checkpoint,
            counts: step.counts.clone(),
            leftovers: step.leftovers.clone(),
        });
        let (context, head) = (self.run.context, &self.run.job.head);
        // Stopping does not interrupt the first try: a batch that was sent is saved if it can be.
        let advance = || context.index.advance(&head.app_id, &head.message_id, &step);
        let answer = self.run.in_turn(advance).await?;
        let Advanced::Saved { recalled } = answer.value else {
            return self.resolve(to, step.counts).await;
        };
        self.unsaved = None;
        context.metrics.settled(&step.counts.outcomes);
        self.owned.state = to;
        if let Some(leftovers) = step.leftovers {
            self.owned.leftovers = leftovers;
        }
        self.owned.recalled = recalled;
        self.owned.checked_at = answer.asked_at;
        Ok(())
    }

    /// Finds out why a step was not saved: an earlier try of it was, another worker owns the
    /// partition now, or the index has forgotten something.
    async fn resolve(&mut self, intended: PartitionState, counts: Counts) -> Result<(), RunEnd> {
        let outcomes = counts.outcomes;
        match self.own_again().await {
            Ok(()) if self.owned.state == intended => {
                self.run.context.metrics.settled(&outcomes);
                Ok(())
            }
            // That it has ended may be this step's doing. Whoever did it, nothing is left to do.
            answer => answer,
        }
    }

    /// Makes sure of the claim, after a look at what the ledger says now.
    async fn own_again(&mut self) -> Result<(), RunEnd> {
        self.ticket.unsaved = self.unsaved.take();
        let owned = self.run.claiming().claim(&mut self.ticket, None).await;
        let unsaved = self.ticket.unsaved.take();
        match owned {
            Ok(owned) => {
                let again = owned.again;
                self.owned = owned;
                self.count_claim();
                // Two consumers hold the same message, each as its own. A message of a new number
                // ends that.
                if again { Err(RunEnd::Yielded) } else { Ok(()) }
            }
            Err(end) => {
                if !matches!(end, RunEnd::Finished | RunEnd::Stale | RunEnd::Superseded) {
                    self.unsaved = unsaved;
                }
                Err(end)
            }
        }
    }

    /// Counts what the claim saved.
    fn count_claim(&mut self) {
        if let Some(counts) = self.owned.saved.take() {
            self.run.context.metrics.settled(&counts.outcomes);
        }
    }
}
