//! The job lane: envelopes of accepted pushes.
//!
//! An envelope is acknowledged only when the outcome of each of its jobs is saved, or the job was
//! handed on or put aside as a dead letter.
//!
//! - here: an envelope, from its decoding to its acknowledgement
//! - `group`: its ordinary pushes to named devices, which take each step together
//! - `single`: a job by itself: a broadcast, a repeated push, or one that left its group
//! - `broadcast`: a large broadcast, published as tasks for all workers

mod broadcast;
mod group;
mod single;

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use push_model::{
    envelope::{BadEnvelope, Job, decode_job_envelope, encode_jobs},
    ids::ClientId,
};
use push_queue::{Delivery, Lane, QueueError};
use tracing::{Instrument as _, Span};

use self::{
    group::{GroupStep, JobGroup},
    single::{JobStage, SingleJob},
};
use super::settling::{Requeue, renew_job, unreadable};
use crate::{context::Context, control::hold::Hold, spans};

/// Processes one envelope.
pub(super) async fn process(
    context: &Context,
    delivery: &Delivery,
    hold: &Hold<'_>,
) -> Result<(), Requeue> {
    let jobs = match decode_job_envelope(&delivery.payload) {
        Ok(jobs) => jobs,
        Err(error) => {
            let envelope = delivery.payload.clone();
            return unreadable(context, Lane::Jobs, envelope, &error, hold).await;
        }
    };
    spans::note_jobs(jobs.iter().map(|job| job.as_ref().ok()));
    let _in_work = context.closed.begin(jobs.iter().flatten());
    let mut results = vec![Err(Requeue::Unfinished); jobs.len()];
    let mut all = process_jobs(context, &jobs, delivery.deliveries, hold);
    while let Some((number, result)) = all.next().await {
        results[number] = result;
    }
    drop(all);
    match envelope_disposition(&results) {
        EnvelopeDisposition::Settle(result) => result,
        EnvelopeDisposition::Split => {
            let jobs = jobs.into_iter().map(Result::ok);
            republish_unfinished(context, delivery, results.into_iter().zip(jobs), hold).await
        }
    }
}

/// An element of an envelope: a job, or bytes that cannot be read as one.
type Decoded = Result<Job, (Bytes, BadEnvelope)>;

/// A job of an envelope.
struct NumberedJob<'a> {
    /// Its number in the envelope.
    number: usize,
    job: &'a Job,
    /// Closed when the job is done. Disabled if the job is not traced.
    span: Span,
}

/// The most jobs of a step that are in work concurrently, and the most steps of an envelope.
const JOBS_AT_ONCE: usize = 32;

/// The result of the job with this number.
type NumberedResult = (usize, Result<(), Requeue>);

/// Returns true if a job may be processed in a group: its envelope is delivered for the first time,
/// and one batch holds all devices that the job names.
fn is_groupable(context: &Context, job: &Job, deliveries: u32) -> bool {
    let is_new = deliveries == 1 && job.continues.is_none();
    is_new && named(job).is_some_and(|named| named.len() <= context.run.batch)
}

/// Returns the devices that a job names; none if it is a broadcast.
fn named(job: &Job) -> Option<&[ClientId]> {
    job.audience.clients()
}

/// Processes each job of an envelope.
fn process_jobs<'a>(
    context: &'a Context,
    jobs: &'a [Decoded],
    deliveries: u32,
    hold: &'a Hold<'a>,
) -> BoxStream<'a, NumberedResult> {
    let (mut groupable, mut others, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for (number, job) in jobs.iter().enumerate() {
        match job {
            Ok(job) if is_groupable(context, job, deliveries) => {
                groupable.push(NumberedJob { number, job, span: spans::grouped_job(job) });
            }
            Ok(job) => {
                let stage = JobStage::NotSent { owner: (context.random)() };
                others.push((NumberedJob { number, job, span: Span::none() }, stage));
            }
            Err((envelope, error)) => unread.push((number, envelope, error)),
        }
    }
    let process_singly = move |jobs: Vec<(NumberedJob<'a>, JobStage)>| {
        let process = move |(NumberedJob { number, job, span }, stage)| async move {
            let single = SingleJob { context, job, deliveries, hold };
            (number, single.process(stage, span).await)
        };
        stream::iter(jobs).map(process).buffer_unordered(JOBS_AT_ONCE)
    };
    let group = JobGroup { context, deliveries, hold }.process(groupable);
    // Any number of steps may have jobs that are processed by themselves: slow ones must not hold up
    // the jobs that are still in the group.
    let group = group.flat_map_unordered(None, move |GroupStep { saved, leaving }| {
        stream::iter(saved).chain(process_singly(leaving)).boxed()
    });
    let put_aside = move |(number, envelope, error): (usize, &'a Bytes, &'a BadEnvelope)| {
        let put_aside = unreadable(context, Lane::Jobs, envelope.clone(), error, hold);
        put_aside.instrument(spans::unreadable_job(number)).map(move |result| (number, result))
    };
    let unread = stream::iter(unread).map(put_aside).buffer_unordered(JOBS_AT_ONCE);
    stream::select(group, stream::select(process_singly(others), unread)).boxed()
}

/// The action to take on an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EnvelopeDisposition {
    /// It is settled as a whole.
    Settle(Result<(), Requeue>),
    /// Its unfinished jobs are published without the others, then it is acknowledged.
    Split,
}

/// Decides from the results of its jobs.
fn envelope_disposition(jobs: &[Result<(), Requeue>]) -> EnvelopeDisposition {
    let requeue = jobs.iter().find_map(|result| result.err());
    match requeue {
        None => EnvelopeDisposition::Settle(Ok(())),
        Some(Requeue::Unfinished) if jobs.iter().any(Result::is_ok) => EnvelopeDisposition::Split,
        Some(requeue) => EnvelopeDisposition::Settle(Err(requeue)),
    }
}

/// Publishes the unfinished jobs without the others. If their envelope were requeued whole, a job
/// of it that was handed on would begin again beside the message that continues it.
async fn republish_unfinished(
    context: &Context,
    delivery: &Delivery,
    each: impl Iterator<Item = (Result<(), Requeue>, Option<Job>)>,
    hold: &Hold<'_>,
) -> Result<(), Requeue> {
    let unfinished = each.filter(|(result, _)| result.is_err()).map(|(_, job)| job);
    let jobs: Option<Vec<Job>> = unfinished.collect();
    // A job that can neither be read nor be put aside is requeued with its envelope.
    let jobs = jobs.ok_or(Requeue::Unfinished)?;
    let publish = async || {
        let mut jobs = jobs.clone();
        jobs.iter_mut().for_each(|job| renew_job(context, job, delivery.deliveries));
        let envelope = encode_jobs(&jobs).map_err(|_| QueueError::Closed)?;
        context.queue.publish(Lane::Jobs, envelope).await
    };
    Ok(context.retrier.publish(hold, publish).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_acknowledged_when_each_of_its_jobs_is_done() {
        let (done, unfinished) = (Ok(()), Err(Requeue::Unfinished));
        assert_eq!(envelope_disposition(&[]), EnvelopeDisposition::Settle(done));
        assert_eq!(envelope_disposition(&[done; 3]), EnvelopeDisposition::Settle(done));
        assert_eq!(envelope_disposition(&[unfinished; 3]), EnvelopeDisposition::Settle(unfinished));
        for jobs in [[unfinished, done, done], [done, done, unfinished]] {
            assert_eq!(envelope_disposition(&jobs), EnvelopeDisposition::Split);
        }
    }
}
