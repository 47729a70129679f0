//! The job lane: envelopes of accepted pushes.
//!
//! A push to named devices, and a broadcast that is small, is sent at once. A large broadcast is
//! cut into partitions that go to the task lane as one task each, for all workers to share. Either
//! way the envelope is acknowledged only when each of its jobs is sent, handed on, or put aside.

use futures::{StreamExt, stream};
use push_shared::{
    envelope::{Job, PartitionTask, Task, Work, decode_batch, encode_alone, encode_jobs},
    ledger::{Claim, Earlier, Entry, Plan},
    message::Audience,
    queue::{Delivery, Lane},
    time::UnixMillis,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    carry_out::carry_out,
    closing,
    renaming::rename_job,
    settling::{Undecided, put_aside, put_aside_by_count, settle, unreadable},
};
use crate::{
    context::Context,
    control::{hold::Hold, waiting::GaveUp},
    delivery::{
        PartitionRun, Run, RunEnd,
        claim::{Owned, Ticket, remember},
        opening::{Opening, open},
        run::Resume,
    },
};

/// How many jobs of one envelope are worked on at once.
const JOBS_AT_ONCE: usize = 32;

/// Works off one envelope and settles it.
pub(super) async fn handle(context: &Context, delivery: Delivery, stopping: &CancellationToken) {
    let _first = context.priority.interactive();
    let is_held = || delivery.is_held();
    let hold = context.waiting.hold(&is_held, stopping);
    let decided = match put_aside_by_count(context, Lane::Jobs, &delivery, &hold).await {
        Some(decided) => decided,
        None => work_off(context, &delivery, &hold).await,
    };
    settle(context, Lane::Jobs, delivery, decided).await;
}

async fn work_off(
    context: &Context,
    delivery: &Delivery,
    hold: &Hold<'_>,
) -> Result<(), Undecided> {
    let jobs = match decode_batch(&delivery.payload) {
        Ok(jobs) => jobs,
        Err(error) => {
            let envelope = delivery.payload.clone();
            return unreadable(context, Lane::Jobs, envelope, &error, hold).await;
        }
    };
    let each = stream::iter(jobs).map(|job| async {
        match job {
            Ok(job) => {
                let deliveries = delivery.deliveries;
                let one = OneJob { context, job: &job, deliveries, hold };
                let decided = one.handle().await;
                (decided, Some(job))
            }
            Err((envelope, error)) => {
                (unreadable(context, Lane::Jobs, envelope, &error, hold).await, None)
            }
        }
    });
    let each: Vec<_> = each.buffer_unordered(JOBS_AT_ONCE).collect().await;
    match of_envelope(&each.iter().map(|(decided, _)| *decided).collect::<Vec<_>>()) {
        OfEnvelope::Settle(decided) => decided,
        OfEnvelope::HandOn => hand_on_undecided(context, delivery, each, hold).await,
    }
}

/// What becomes of an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfEnvelope {
    /// It is settled as a whole.
    Settle(Result<(), Undecided>),
    /// Its undecided jobs go on without the others.
    HandOn,
}

/// Decides by what became of each of its jobs.
fn of_envelope(jobs: &[Result<(), Undecided>]) -> OfEnvelope {
    let undecided = jobs.iter().find_map(|decided| decided.err());
    match undecided {
        None => OfEnvelope::Settle(Ok(())),
        Some(Undecided::GiveBack) if jobs.iter().any(Result::is_ok) => OfEnvelope::HandOn,
        Some(undecided) => OfEnvelope::Settle(Err(undecided)),
    }
}

/// Publishes the undecided jobs without the others. If their envelope went back whole, a job of it
/// that was handed on would begin again beside the message that continues it.
async fn hand_on_undecided(
    context: &Context,
    delivery: &Delivery,
    each: Vec<(Result<(), Undecided>, Option<Job>)>,
    hold: &Hold<'_>,
) -> Result<(), Undecided> {
    let undecided = each.into_iter().filter(|(decided, _)| decided.is_err()).map(|(_, job)| job);
    let jobs: Option<Vec<Job>> = undecided.collect();
    // One that cannot be read and could not be put aside goes back with its envelope.
    let jobs = jobs.ok_or(Undecided::GiveBack)?;
    let publish = async || {
        let mut jobs = jobs.clone();
        jobs.iter_mut().for_each(|job| rename_job(context, job, delivery.deliveries));
        let envelope = encode_jobs(&jobs).map_err(|_| push_shared::queue::QueueError::Closed)?;
        context.queue.publish(Lane::Jobs, envelope).await
    };
    Ok(context.waiting.for_publish(hold, publish).await?)
}

struct OneJob<'a> {
    context: &'a Context,
    job: &'a Job,
    /// How often its envelope was handed out.
    deliveries: u32,
    hold: &'a Hold<'a>,
}

impl OneJob<'_> {
    async fn handle(&self) -> Result<(), Undecided> {
        let Self { context, job, hold, .. } = *self;
        // Where the devices are named there is one partition, which is claimed in the step that
        // opens the entry.
        let owner = (context.random)();
        let delivery = self.deliveries;
        let claim = Claim { generation: 1, nonce: job.nonce, delivery, owner };
        let claim = matches!(*job.audience, Audience::Clients(_)).then_some(claim);
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
        let Self { context, job, deliveries, hold } = *self;
        let run = PartitionRun {
            context,
            job,
            plan: Some(plan),
            slices: plan.partitions.first().map_or(&[], Vec::as_slice),
            lane: Lane::Jobs,
            forgotten: false,
            beyond_plan: false,
            hold,
        };
        let task = PartitionTask { continues: job.continues.clone(), ..first_task(0, job.nonce) };
        let ticket = Ticket::of(&task, deliveries, owner);
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
            let envelope = task.encode().map_err(|_| push_shared::queue::QueueError::Closed)?;
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
            let alone = encode_alone(&job).map_err(|_| push_shared::queue::QueueError::Closed)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_acknowledged_when_each_of_its_jobs_is_decided() {
        let (decided, undecided) = (Ok(()), Err(Undecided::GiveBack));
        assert_eq!(of_envelope(&[]), OfEnvelope::Settle(decided));
        assert_eq!(of_envelope(&[decided; 3]), OfEnvelope::Settle(decided));
        assert_eq!(of_envelope(&[undecided; 3]), OfEnvelope::Settle(undecided));
        for jobs in [[undecided, decided, decided], [decided, decided, undecided]] {
            assert_eq!(of_envelope(&jobs), OfEnvelope::HandOn);
        }
    }
}
