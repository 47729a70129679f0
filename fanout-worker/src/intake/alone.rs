//! A job that is worked off on its own: a broadcast, a push that came again, or one that left the
//! common course of [`together`](super::together) somewhere.
//!
//! A push to named devices, and a broadcast that is small, is sent at once. A large broadcast is
//! cut into partitions that go to the task lane as one task each, for all workers to share.

use push_model::{
    envelope::{Job, PartitionTask, Task, Work, encode_alone},
    ledger::{Claim, Earlier, Entry, Plan},
    message::Audience,
    time::UnixMillis,
};
use push_queue::Lane;
use tokio::time::Instant;

use super::{
    carry_out::carry_out,
    closing,
    settling::{Undecided, put_aside},
};
use crate::{
    context::Context,
    control::{hold::Hold, waiting::GaveUp},
    delivery::{
        PartitionRun, Run, RunEnd,
        claim::{Owned, Ticket, remember},
        opening::{Opening, open},
        run::{Resume, Sent},
    },
};

/// How far a job has come.
#[derive(Debug)]
pub(super) enum Reached {
    /// Nothing of it is sent. This owner may have claimed it.
    Nothing { owner: u64 },
    /// It was sent to all devices that it names; what became of them is not saved.
    Sent(Box<Sent>),
}

/// One job of an envelope.
#[derive(Clone, Copy)]
pub(super) struct OneJob<'a> {
    pub(super) context: &'a Context,
    pub(super) job: &'a Job,
    /// How often its envelope was handed out.
    pub(super) deliveries: u32,
    pub(super) hold: &'a Hold<'a>,
}

impl OneJob<'_> {
    /// What claims it, where its devices are named: there is one partition, then, which is claimed
    /// in the step that opens the entry.
    pub(super) fn claim(&self, owner: u64) -> Option<Claim> {
        let Self { job, deliveries, .. } = *self;
        let claim = Claim { generation: 1, nonce: job.nonce, delivery: deliveries, owner };
        matches!(*job.audience, Audience::Clients(_)).then_some(claim)
    }

    /// Works it off from where it is.
    pub(super) async fn go_on(&self, reached: Reached) -> Result<(), Undecided> {
        match reached {
            Reached::Nothing { owner } => self.open(owner).await,
            Reached::Sent(sent) => self.save(*sent).await,
        }
    }

    async fn open(&self, owner: u64) -> Result<(), Undecided> {
        let Self { context, job, hold, .. } = *self;
        let claim = self.claim(owner);
        let asked_at = Instant::now();
        // Side by side, so that a small push does not wait for one answer after the other. The run
        // finds the app's pace known; if it could not be read, it asks again.
        let app = job.app();
        let pace = context.pace(&app, hold);
        let (opened, _) = tokio::join!(open(context, job, None, claim, hold), pace);
        match opened {
            Ok(Opening::Open(entry, plan)) => self.begin(&entry, &plan, owner, asked_at).await,
            Ok(Opening::Repeated) => Ok(()),
            Ok(Opening::After(time)) => self.later(time, false).await,
            Err(GaveUp::Interrupted) => Err(Undecided::GiveBack),
            Err(GaveUp::TooLong) => self.later(context.now(), claim.is_some()).await,
            Err(GaveUp::Broken(reason)) => {
                let alone = encode_alone(job).map_err(|_| Undecided::GiveBack)?;
                put_aside(context, Lane::Jobs, alone, &reason, hold).await
            }
        }
    }

    async fn begin(
        &self,
        entry: &Entry,
        plan: &Plan,
        owner: u64,
        asked_at: Instant,
    ) -> Result<(), Undecided> {
        let Self { context, job, hold, .. } = *self;
        let is_broadcast = !matches!(*job.audience, Audience::Clients(_));
        match plan.partitions.as_slice() {
            [] => Ok(()),
            [_] => {
                // First: what follows the sending must not be given back with the envelope.
                if is_broadcast {
                    closing::begin(context, job, plan, hold).await?;
                }
                self.send_at_once(entry, plan, owner, asked_at).await
            }
            partitions => {
                for number in (0..).zip(partitions).map(|(number, _)| number) {
                    self.hand_on(entry, plan, number).await?;
                }
                Ok(closing::begin(context, job, plan, hold).await?)
            }
        }
    }

    /// Sends what is one partition, and hands on what is left of it.
    async fn send_at_once(
        &self,
        entry: &Entry,
        plan: &Plan,
        owner: u64,
        asked_at: Instant,
    ) -> Result<(), Undecided> {
        let Self { context, job, hold, .. } = *self;
        let run = self.run(plan);
        let (task, ticket) = self.ticket(owner);
        let view = entry.view(0);
        let ended = match view.partition.state.claim {
            Some(claim) if claim.owner == owner => {
                let owned = Owned {
                    claim,
                    state: view.partition.state,
                    leftovers: view.partition.leftovers,
                    recalled: view.recalled,
                    checked_at: asked_at,
                    again: false,
                    saved: None,
                };
                run.run_owned(ticket, owned).await
            }
            _ => run.run(ticket, Some((view, asked_at))).await,
        };
        if let Run { end: RunEnd::Interrupted, resume: Resume { claim: None, .. } } = ended {
            // No claim is known; a redelivery takes over one that was made.
            return Err(Undecided::GiveBack);
        }
        carry_out(context, job, Some(plan), task, ended, hold).await
    }

    /// Saves what was sent, and hands on what is left of it.
    async fn save(&self, sent: Sent) -> Result<(), Undecided> {
        let Self { context, job, hold, .. } = *self;
        let plan = Plan::named();
        let (task, ticket) = self.ticket(sent.owned.claim.owner);
        let ended = self.run(&plan).run_sent(ticket, sent).await;
        carry_out(context, job, Some(&plan), task, ended, hold).await
    }

    fn run<'b>(&'b self, plan: &'b Plan) -> PartitionRun<'b> {
        PartitionRun {
            context: self.context,
            job: self.job,
            plan: Some(plan),
            slices: plan.partitions.first().map_or(&[], Vec::as_slice),
            lane: Lane::Jobs,
            forgotten: false,
            beyond_plan: false,
            hold: self.hold,
        }
    }

    /// The partition as a task, and with what it is claimed.
    fn ticket(&self, owner: u64) -> (PartitionTask, Ticket) {
        let Self { job, deliveries, .. } = *self;
        let task = PartitionTask { continues: job.continues.clone(), ..first_task(0, job.nonce) };
        let ticket = Ticket::of(&task, deliveries, owner);
        (task, ticket)
    }

    /// Publishes the first task of a partition, unless one was published before (this is a
    /// redelivery, then). One that exists twice is harmless.
    async fn hand_on(&self, entry: &Entry, plan: &Plan, number: u32) -> Result<(), Undecided> {
        let Self { context, job, hold, .. } = *self;
        let state = entry.partition(number).state;
        if state.claim.is_some() || state.is_ended() {
            return Ok(());
        }
        let publish = async || {
            let work = Work::Partition(first_task(number, (context.random)()));
            let task = Task { job: job.clone(), plan: Some(plan.clone()), work };
            let envelope = task.encode().map_err(|_| push_queue::QueueError::Closed)?;
            context.queue.publish(Lane::Tasks, envelope).await
        };
        Ok(context.waiting.for_publish(hold, publish).await?)
    }

    /// Publishes the job to come back after this time. `tried`: it may have been claimed.
    async fn later(&self, time: UnixMillis, tried: bool) -> Result<(), Undecided> {
        let Self { context, job, hold, deliveries, .. } = *self;
        let pause = context.retry.delay(0, context.jitter());
        let delay = time.since(context.now()).saturating_add(pause);
        let mut job = job.clone();
        if tried || deliveries > 1 {
            let earlier = Earlier { nonce: job.nonce, delivery: deliveries };
            remember(&mut job.continues, earlier);
        }
        let publish = async || {
            let job = Job { nonce: (context.random)(), ..job.clone() };
            let alone = encode_alone(&job).map_err(|_| push_queue::QueueError::Closed)?;
            context.queue.publish_later(Lane::Jobs, alone, delay).await
        };
        Ok(context.waiting.for_publish(hold, publish).await?)
    }
}

/// The first task of a partition.
fn first_task(partition: u32, nonce: u64) -> PartitionTask {
    PartitionTask {
        partition,
        parent: 0,
        nonce,
        continues: Vec::new(),
        attempt: 0,
        unsaved: None,
        forgotten: false,
    }
}
