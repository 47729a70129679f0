//! Queue messages under other numbers: what is published anew must not be taken for a delivery of
//! the message that it replaces, which may be there as well.

use bytes::Bytes;
use push_model::{
    envelope::{Job, Task, Work, decode_batch, encode_jobs},
    ledger::Earlier,
};
use push_queue::{Delivery, Lane};

use crate::{context::Context, delivery::claim::remember};

/// A job under another number, which continues what was claimed with it up to this delivery.
pub(super) fn rename_job(context: &Context, job: &mut Job, delivery: u32) {
    rename(context, &mut job.nonce, &mut job.continues, delivery);
}

/// The same of a whole message. One that cannot be read stays as it is.
pub(super) fn renamed(context: &Context, lane: Lane, delivery: &Delivery) -> Bytes {
    let (payload, deliveries) = (&delivery.payload, delivery.deliveries);
    let renamed = match lane {
        Lane::Jobs => decode_batch(payload).ok().and_then(|jobs| {
            let mut jobs: Vec<Job> = jobs.into_iter().collect::<Result<_, _>>().ok()?;
            jobs.iter_mut().for_each(|job| rename_job(context, job, deliveries));
            encode_jobs(&jobs).ok()
        }),
        Lane::Tasks => Task::decode(payload).ok().and_then(|mut task| {
            if let Work::Partition(task) = &mut task.work {
                rename(context, &mut task.nonce, &mut task.continues, deliveries);
            }
            task.encode().ok()
        }),
    };
    renamed.unwrap_or_else(|| payload.clone())
}

fn rename(context: &Context, nonce: &mut u64, continues: &mut Vec<Earlier>, delivery: u32) {
    let nonce = std::mem::replace(nonce, (context.random)());
    remember(continues, Earlier { nonce, delivery });
}
