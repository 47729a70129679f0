//! The job lane: envelopes of accepted pushes.
//!
//! Pushes to named devices are worked off [`together`], everything else [`alone`]. An envelope is
//! acknowledged only when what became of each of its jobs is saved, or the job was handed on or put
//! aside.
//!
//! [`together`]: super::together
//! [`alone`]: super::alone

use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use push_model::envelope::{BadEnvelope, Job, decode_batch, encode_jobs};
use push_queue::{Delivery, Lane};
use tokio_util::sync::CancellationToken;

use super::{
    alone::{OneJob, Reached},
    renaming::rename_job,
    settling::{Undecided, put_aside_by_count, settle, unreadable},
    together::{Decided, Together, is_ordinary},
};
use crate::{context::Context, control::hold::Hold};

/// How many jobs of one envelope are worked on at once that take their time: that wait for a
/// transport, or are on their own.
pub(super) const JOBS_AT_ONCE: usize = 32;

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
    let mut decided = vec![Err(Undecided::GiveBack); jobs.len()];
    let mut all = each_of(context, &jobs, delivery.deliveries, hold);
    while let Some((number, of_job)) = all.next().await {
        decided[number] = of_job;
    }
    drop(all);
    match of_envelope(&decided) {
        OfEnvelope::Settle(decided) => decided,
        OfEnvelope::HandOn => {
            let jobs = jobs.into_iter().map(Result::ok);
            hand_on_undecided(context, delivery, decided.into_iter().zip(jobs), hold).await
        }
    }
}

/// What the envelope held: a job, or what cannot be read as one.
type Decoded = Result<Job, (Bytes, BadEnvelope)>;

/// Works off each job of an envelope.
fn each_of<'a>(
    context: &'a Context,
    jobs: &'a [Decoded],
    deliveries: u32,
    hold: &'a Hold<'a>,
) -> BoxStream<'a, Decided> {
    let (mut ordinary, mut others) = (Vec::new(), Vec::new());
    for (number, job) in jobs.iter().enumerate() {
        match job {
            Ok(job) if is_ordinary(context, job, deliveries) => ordinary.push((number, job)),
            other => others.push((number, other)),
        }
    }
    let together = Together { context, deliveries, hold }.work_off(ordinary);
    let others = stream::iter(others)
        .map(move |job| on_its_own(context, deliveries, hold, job))
        .buffer_unordered(JOBS_AT_ONCE);
    stream::select(together, others).boxed()
}

/// Works off a job that is not ordinary, or cannot be read.
async fn on_its_own<'a>(
    context: &'a Context,
    deliveries: u32,
    hold: &'a Hold<'a>,
    (number, job): (usize, &'a Decoded),
) -> Decided {
    let decided = match job {
        Ok(job) => {
            let reached = Reached::Nothing { owner: (context.random)() };
            OneJob { context, job, deliveries, hold }.go_on(reached).await
        }
        Err((envelope, error)) => {
            unreadable(context, Lane::Jobs, envelope.clone(), error, hold).await
        }
    };
    (number, decided)
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
    each: impl Iterator<Item = (Result<(), Undecided>, Option<Job>)>,
    hold: &Hold<'_>,
) -> Result<(), Undecided> {
    let undecided = each.filter(|(decided, _)| decided.is_err()).map(|(_, job)| job);
    let jobs: Option<Vec<Job>> = undecided.collect();
    // One that cannot be read and could not be put aside goes back with its envelope.
    let jobs = jobs.ok_or(Undecided::GiveBack)?;
    let publish = async || {
        let mut jobs = jobs.clone();
        jobs.iter_mut().for_each(|job| rename_job(context, job, delivery.deliveries));
        let envelope = encode_jobs(&jobs).map_err(|_| push_queue::QueueError::Closed)?;
        context.queue.publish(Lane::Jobs, envelope).await
    };
    Ok(context.waiting.for_publish(hold, publish).await?)
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
