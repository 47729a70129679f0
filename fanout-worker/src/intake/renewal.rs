//! Publishing a message anew under another nonce. With its old nonce the new message would be taken
//! for a delivery of the message that it replaces, which may still be in the queue.

use bytes::Bytes;
use push_model::{
    envelope::{Job, Task, Work, decode_job_envelope, encode_jobs},
    ledger::PriorDeliveries,
};
use push_queue::{Delivery, Lane};

use crate::context::Context;

/// Gives a job another nonce, under which it continues the claims of its deliveries so far.
pub(super) fn renew_job(context: &Context, job: &mut Job, delivery: u32) {
    renew(context, &mut job.nonce, &mut job.continues, delivery);
}

/// The payload of a message under another nonce; the same payload if it cannot be read.
pub(super) fn renewed(context: &Context, lane: Lane, delivery: &Delivery) -> Bytes {
    let (payload, deliveries) = (&delivery.payload, delivery.deliveries);
    let renewed = match lane {
        Lane::Jobs => decode_job_envelope(payload).ok().and_then(|jobs| {
            let mut jobs: Vec<Job> = jobs.into_iter().collect::<Result<_, _>>().ok()?;
            jobs.iter_mut().for_each(|job| renew_job(context, job, deliveries));
            encode_jobs(&jobs).ok()
        }),
        Lane::Tasks => Task::decode(payload).ok().and_then(|mut task| {
            if let Work::Partition(task) = &mut task.work {
                renew(context, &mut task.nonce, &mut task.continues, deliveries);
            }
            task.encode().ok()
        }),
        Lane::Isolated => None,
    };
    renewed.unwrap_or_else(|| payload.clone())
}

fn renew(context: &Context, nonce: &mut u64, continues: &mut Option<PriorDeliveries>, by: u32) {
    *continues = Some(PriorDeliveries::followed_by(*continues, *nonce, by));
    *nonce = PriorDeliveries::next_nonce(*continues, (context.random)());
}
