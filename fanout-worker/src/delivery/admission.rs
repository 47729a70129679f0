//! Admitting a message for delivery: its ledger entry is begun and its plan is fixed before the
//! first device is sent to.
//!
//! Two requests with one `Idempotency-Key` make two copies of a message. The copy that begins the
//! entry is sent. The other one is dropped if it has another body, and otherwise unless the first expires without being sent to any
//! device and the other expires later: then the other takes the entry over.

use push_model::{
    envelope::Job,
    fingerprint::Fingerprint,
    ledger::{Claim, Entry, NewEntry, Plan},
    message::Audience,
    time::UnixMillis,
};

use super::plan;
use crate::{
    context::Context,
    control::{hold::Hold, retrier::RetryError},
};

/// Whether this copy of a message may be sent.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The entry is this copy's, and its plan is fixed.
    Admitted(Box<Entry>, Plan),
    /// The entry is another copy's and stays so: this copy is dropped.
    Duplicate,
    /// Another copy holds the entry and may end unsent: ask again at this time.
    Deferred(UnixMillis),
}

/// The entry of a message as it begins.
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
        app_id: head.app_id.clone(),
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
    let entry = loop {
        let begin = || context.index.begin(&new);
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
                    && ended_unsent(context, &entry) =>
            {
                new.replaces = Some(dedup_nonce);
            }
            _ if may_end_unsent(&entry, job) => {
                return Ok(Admission::Deferred(retry_at(entry.expires_at, context.now())));
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
            let extent = || context.index.extent(&app);
            let extent = context.retrier.ask_index(hold, extent).await?.value;
            plan::cut(&extent, context.plan.partitions, context.plan.min_slots)
        }
    };
    let fix = || context.index.plan(&head.message_id, &plan);
    // `None`: the entry was lost just now. The claim, which comes next, begins it again.
    let plan = context.retrier.ask_index(hold, fix).await?.value.unwrap_or(plan);
    Ok(Admission::Admitted(Box::new(entry), plan))
}

fn drop_copy(context: &Context, job: &Job, entry: &Entry) -> Admission {
    let Context { metrics, dropped_copies, .. } = context;
    dropped_copies.note(metrics, &job.head.message_id, job.dedup_nonce, entry.dedup_nonce);
    Admission::Duplicate
}

/// Whether the copy of this entry ended before any device was sent to: then a later copy of the
/// message may be sent in its place. An entry that is still open `write_off_after` its end has no
/// worker any more: the index lost how it ended.
fn ended_unsent(context: &Context, entry: &Entry) -> bool {
    let end = entry.expires_at.map(|at| {
        let now_or_never = entry.accepted_at.plus(context.run.now_window);
        at.max(now_or_never).plus(context.closing.write_off_after)
    });
    let is_written_off = end.is_some_and(|end| context.now() > end);
    entry.ended_unsent() || (!entry.is_closed() && is_written_off && entry.is_unsent())
}

/// Whether this copy expires after the copy that holds the entry. Only such a copy may replace it:
/// otherwise a late delivery of the first copy would replace the second one again.
fn ends_after(job: &Job, entry: &Entry) -> bool {
    entry.expires_at.is_some_and(|at| at < job.head.expires_at)
}

/// Whether the copy that holds the entry is still worked on, and may expire before this one does.
fn may_end_unsent(entry: &Entry, job: &Job) -> bool {
    !entry.is_closed() && ends_after(job, entry) && entry.is_unsent()
}

/// When to read the entry of a copy again that may end unsent: at its expiry, and from then on at
/// growing intervals, because what is in work may take a while to be counted.
fn retry_at(expires_at: Option<UnixMillis>, now: UnixMillis) -> UnixMillis {
    let expires_at = expires_at.unwrap_or_default();
    if now < expires_at { expires_at } else { now.plus(now.since(expires_at)) }
}
