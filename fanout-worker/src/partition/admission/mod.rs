//! Admitting a message for delivery: its ledger entry is begun and its plan is fixed before the
//! first device is sent to.
//!
//! - `copies`: what becomes of a second copy of a message

mod copies;

use push_model::{
    envelope::{Job, encode_alone},
    fingerprint::Fingerprint,
    ledger::{Claim, Entry, NewEntry, Plan},
    message::Audience,
    plan,
    time::UnixMillis,
};

use self::copies::{
    awaits_answer, ends_after, is_partly_taken, may_end_unsent, next_look, take_over, take_over_at,
};
use crate::{
    context::Context,
    control::{hold::Hold, retrier::RetryError},
    limits::PlanLimits,
};

/// The most times that an entry is read while it changes. Then the message is put off.
const TRIES: u32 = 8;

/// The decision about sending this copy of a message.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The entry is this copy's, and its plan is fixed.
    Admitted(Box<Entry>, Plan),
    /// The entry is another copy's and stays so: this copy is dropped.
    Duplicate,
    /// Another copy holds the entry and may end unsent: ask again at this time.
    Deferred(UnixMillis),
}

/// Makes the entry with which a message begins.
pub(crate) fn new_entry(
    context: &Context,
    job: &Job,
    plan: Option<Plan>,
    claim: Option<Claim>,
) -> NewEntry {
    let head = &job.head;
    // The plan of a push to named devices does not depend on the index.
    let named = matches!(*job.audience, Audience::Clients(_)).then(Plan::named);
    NewEntry {
        message_id: head.message_id,
        app: job.app(),
        accepted_at: head.accepted_at,
        expires_at: head.expires_at,
        dedup_nonce: job.dedup_nonce,
        keep_until: context.keep_until(job),
        plan: plan.or(named),
        claim,
        replaces: None,
    }
}

/// Begins the entry of a message and fixes its plan: the given one, or one cut now. If this call
/// begins the entry, `claim` is the claim of partition 0.
pub(crate) async fn admit(
    context: &Context,
    job: &Job,
    plan: Option<Plan>,
    claim: Option<Claim>,
    hold: &Hold<'_>,
) -> Result<Admission, RetryError> {
    let head = &job.head;
    let mut new = new_entry(context, job, plan, claim);
    let mut tries = 0;
    let entry = loop {
        tries += 1;
        let begin = || context.ledger.begin(&new);
        let entry = context.retrier.ask_index(hold, begin).await?.value;
        match entry.dedup_nonce {
            Some(dedup_nonce) if dedup_nonce == job.dedup_nonce => break entry,
            // A copy with another body is never sent in place of the first one.
            Some(dedup_nonce) if Fingerprint::differs(dedup_nonce, job.dedup_nonce) => {
                return Ok(drop_copy(context, job, &entry));
            }
            Some(dedup_nonce)
                if new.replaces != Some(dedup_nonce)
                    && ends_after(job, &entry)
                    && entry.ended_unsent() =>
            {
                new.replaces = Some(dedup_nonce);
            }
            Some(dedup_nonce) if may_end_unsent(&entry, job) => {
                let (now, deadline) = (context.now(), context.deadline(head));
                let next_look = next_look(&entry, head.accepted_at, deadline, now, &context.retry);
                if awaits_answer(&entry) && !is_partly_taken(&entry, job) {
                    if now > deadline {
                        return Ok(drop_copy(context, job, &entry));
                    }
                    return Ok(Admission::Deferred(next_look));
                }
                let at = take_over_at(context, &entry, job);
                if now < at {
                    return Ok(Admission::Deferred(next_look.min(at)));
                }
                if tries > TRIES {
                    return Ok(Admission::Deferred(now));
                }
                if take_over(context, job, &entry, hold).await? {
                    new.replaces = Some(dedup_nonce);
                }
            }
            _ => return Ok(drop_copy(context, job, &entry)),
        }
    };
    if let Some(plan) = entry.plan.clone() {
        return Ok(Admission::Admitted(Box::new(entry), plan));
    }
    let plan = match new.plan.clone() {
        Some(plan) => plan,
        None => {
            let app = job.app();
            let transports = || context.index.transports(&app);
            let extents = context.retrier.ask_index(hold, transports).await?.value;
            let extents = extents.iter().map(|extent| (extent.transport, &*extent.ranges));
            let extents: Vec<_> = extents.collect();
            let PlanLimits { partitions, min_slots } = context.plan;
            plan::cut(&extents, partitions, min_slots, job_bytes(job))
        }
    };
    let app = job.app();
    let fix = || context.ledger.plan(&app, &head.message_id, &plan);
    // `None`: the entry was lost just now. The claim, which comes next, begins it again.
    let plan = context.retrier.ask_index(hold, fix).await?.value.unwrap_or(plan);
    Ok(Admission::Admitted(Box::new(entry), plan))
}

/// Returns the number of bytes that the job takes in each of its tasks.
fn job_bytes(job: &Job) -> u64 {
    let alone = encode_alone(job).map_or(usize::MAX, |alone| alone.len());
    u64::try_from(alone).unwrap_or(u64::MAX)
}

fn drop_copy(context: &Context, job: &Job, entry: &Entry) -> Admission {
    let Context { metrics, dropped_copies, .. } = context;
    dropped_copies.note(metrics, &job.head.message_id, job.dedup_nonce, entry.dedup_nonce);
    Admission::Duplicate
}
