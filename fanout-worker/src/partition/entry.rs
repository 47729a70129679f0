//! Beginning the ledger entry of a message. It is begun, and its plan fixed, before the first device
//! is sent to.
//!
//! Two requests with one `Idempotency-Key` make two copies of a message. The copy that begins the
//! entry is sent. The second copy is dropped, with one exception: if it has the same body and a
//! later expiry, and the first copy expires before it was sent to any device, the second takes the
//! entry over.
//!
//! An open entry does not prove that a worker has the first copy, because the ledger may have lost
//! how the copy ended. So the second copy waits until the first has expired, and then claims its
//! partitions. If that succeeds, the first copy can no longer be saved or sent.
//!
//! While devices of the first copy are with a transport that has not answered, they may have
//! received it. So the second copy claims nothing and waits for the outcome, at most until it
//! expires itself.

use std::time::Duration;

use push_model::{
    envelope::{Job, encode_alone},
    fingerprint::Fingerprint,
    ledger::{
        Advance, AdvanceOutcome, BroadcastNote, Claim, Counts, Entry, NewEntry, PartitionState,
        Plan, RetryReason,
    },
    message::Audience,
    plan,
    time::UnixMillis,
};
use tracing::info;

use crate::{
    context::Context,
    control::{
        hold::Hold,
        retrier::RetryError,
        retry_policy::{RetryPolicy, back_within},
    },
    limits::PlanLimits,
};

/// The longest time for which a batch is with a transport after its message expired. A copy that
/// expired longer ago has counted what it sent, if a worker has it at all.
const IN_FLIGHT: Duration = Duration::from_secs(15);

/// A copy that outlives the first one by less than this does not take over an open entry until the
/// first copy may be written off.
const WORTH_TAKING: Duration = Duration::from_secs(10);

/// The most times that an entry is read while it changes. Then the message is put off.
const TRIES: u32 = 8;

/// The decision about sending this copy of a message.
#[derive(Debug)]
pub(crate) enum EntryOutcome {
    /// The entry is this copy's, and its plan is fixed.
    Ours(Box<Entry>, Plan),
    /// The entry is another copy's and stays so: this copy is dropped.
    Duplicate,
    /// Another copy holds the entry and may end unsent: ask again at this time.
    Deferred(UnixMillis),
    /// The entry of this copy was closed, and the ledger remembers that it was evicted: nothing is left
    /// to do.
    Evicted,
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
    let named = job.audience.clients().map(|_| Plan::named());
    let broadcast = match *job.audience {
        Audience::Clients(_) | Audience::Users(_) => None,
        Audience::All | Audience::Targeting(_) => {
            Some(Box::new(BroadcastNote::of(&job.payload, job.sent_by.as_deref())))
        }
    };
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
        broadcast,
    }
}

/// Begins the entry of a message and fixes its plan: the given one, or one cut now. If this call
/// begins the entry, `claim` is the claim of partition 0.
pub(crate) async fn begin_entry(
    context: &Context,
    job: &Job,
    plan: Option<Plan>,
    claim: Option<Claim>,
    hold: &Hold<'_>,
) -> Result<EntryOutcome, RetryError> {
    let head = &job.head;
    let mut new = new_entry(context, job, plan, claim);
    let mut tries = 0;
    let entry = loop {
        tries += 1;
        let begin = || context.ledger.begin(&new);
        let Some(entry) = context.retrier.ask_store(hold, begin).await?.value else {
            return Ok(EntryOutcome::Evicted);
        };
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
                    return Ok(EntryOutcome::Deferred(next_look));
                }
                let at = take_over_at(context, &entry, job);
                if now < at {
                    return Ok(EntryOutcome::Deferred(next_look.min(at)));
                }
                if tries > TRIES {
                    return Ok(EntryOutcome::Deferred(now));
                }
                if take_over(context, job, &entry, hold).await? {
                    new.replaces = Some(dedup_nonce);
                }
            }
            _ => return Ok(drop_copy(context, job, &entry)),
        }
    };
    if let Some(plan) = entry.plan.clone() {
        return Ok(EntryOutcome::Ours(Box::new(entry), plan));
    }
    let plan = match new.plan.clone() {
        Some(plan) => plan,
        None => {
            let app = job.app();
            let carriers = || context.index.carriers(&app);
            let extents = context.retrier.ask_store(hold, carriers).await?.value;
            let extents = extents.iter().map(|extent| (extent.carrier, &*extent.ranges));
            let extents: Vec<_> = extents.collect();
            let PlanLimits { partitions, min_slots } = context.plan;
            plan::cut(&extents, partitions, min_slots, job_bytes(job))
        }
    };
    let app = job.app();
    let fix = || context.ledger.plan(&app, &head.message_id, &plan);
    // `None`: the entry was lost just now. The claim, which comes next, begins it again.
    let plan = context.retrier.ask_store(hold, fix).await?.value.unwrap_or(plan);
    Ok(EntryOutcome::Ours(Box::new(entry), plan))
}

/// Returns the number of bytes that the job takes in each of its tasks.
fn job_bytes(job: &Job) -> u64 {
    let alone = encode_alone(job).map_or(usize::MAX, |alone| alone.len());
    u64::try_from(alone).unwrap_or(u64::MAX)
}

fn drop_copy(context: &Context, job: &Job, entry: &Entry) -> EntryOutcome {
    let Context { metrics, dropped_copies, .. } = context;
    dropped_copies.note(metrics, &job.head.message_id, job.dedup_nonce, entry.dedup_nonce);
    EntryOutcome::Duplicate
}

/// Returns true if this copy expires after the copy that holds the entry. Only such a copy may
/// replace it. Otherwise a late delivery of the first copy would replace the second one again.
fn ends_after(job: &Job, entry: &Entry) -> bool {
    entry.expires_at.is_some_and(|at| at < job.head.expires_at)
}

/// Returns true if, by its entry, the copy that holds the entry may end before any device was sent
/// to. The copy need not be in work: the ledger may have lost how it ended.
fn may_end_unsent(entry: &Entry, job: &Job) -> bool {
    let is_unsent = entry.is_unsent() || awaits_answer(entry) || is_partly_taken(entry, job);
    !entry.is_closed() && ends_after(job, entry) && is_unsent
}

/// Returns true if it is open whether a device received or refused the message, because a transport
/// has not answered yet. A try that ended without an answer leaves nothing open: the device may
/// have received the message.
fn awaits_answer(entry: &Entry) -> bool {
    let Entry { outcomes, recalled_at, retried, .. } = entry;
    let is_known = outcomes.sent > 0
        || !outcomes.failed.is_empty()
        || retried.contains_key(&RetryReason::Unanswered);
    recalled_at.is_none() && !is_known && !entry.is_unsent()
}

/// Returns true if this copy has begun to take the entry over. It must not stop halfway, because
/// the tasks of the partitions that it claimed are stale from then on.
fn is_partly_taken(entry: &Entry, job: &Job) -> bool {
    let is_ours = |claim: Claim| claim.nonce == job.dedup_nonce;
    entry.recalled_at.is_none()
        && entry.partitions.values().any(|p| p.state.claim.is_some_and(is_ours))
}

/// Returns when a copy takes an open entry over from the copy that holds it: when the holder has
/// expired and has counted what it had sent, but early enough to send this copy within its own time
/// to live.
fn take_over_at(context: &Context, entry: &Entry, job: &Job) -> UnixMillis {
    let end = match entry.expires_at {
        Some(at) if at > entry.accepted_at => at,
        _ => entry.accepted_at.plus(context.run.now_window),
    };
    let own = context.deadline(&job.head).since(end);
    // Too little time to tell a lost copy from one whose last batch is not counted yet.
    if own < WORTH_TAKING {
        return end.plus(context.closing.write_off_after);
    }
    end.plus(IN_FLIGHT.min(own / 2))
}

/// Claims all open partitions of another copy's entry. After that, the other copy can save nothing
/// and its queue messages are stale. Returns false if a partition was changed meanwhile, because
/// then the other copy is in work.
async fn take_over(
    context: &Context,
    job: &Job,
    entry: &Entry,
    hold: &Hold<'_>,
) -> Result<bool, RetryError> {
    let (message, app, owner) = (&job.head.message_id, job.app(), (context.random)());
    let partitions = entry.plan.as_ref().map_or(&[][..], |plan| &plan.partitions);
    for partition in (0..).zip(partitions).map(|(number, _)| number) {
        let from = entry.partition(partition).state;
        if from.is_ended() {
            continue;
        }
        let epoch = from.claim.map_or(0, |claim| claim.epoch).saturating_add(1);
        let claim = Claim { epoch, nonce: job.dedup_nonce, delivery: 1, owner };
        let step = Advance {
            dedup_nonce: entry.dedup_nonce.unwrap_or_default(),
            partition,
            from,
            to: PartitionState { claim: Some(claim), ..from },
            leftovers: None,
            counts: Counts::default(),
            keep_until: None,
        };
        let advance = || context.ledger.advance(&app, message, &step);
        let claimed = context.retrier.ask_store(hold, advance).await?.value;
        if claimed != (AdvanceOutcome::Saved { recalled: false }) {
            return Ok(false);
        }
    }
    info!("took over from another copy of this message, which expired and was never closed");
    Ok(true)
}

/// Returns when to read the entry of a copy that may end unsent again. The intervals grow with the
/// time since this copy was accepted, and then with the time since the holder expired, because a
/// batch in flight may take a while to be counted. Each leaves this copy half of its remaining life
/// even if the queue is late, so that it can still be sent.
fn next_look(
    entry: &Entry,
    accepted_at: UnixMillis,
    deadline: UnixMillis,
    now: UnixMillis,
    retry: &RetryPolicy,
) -> UnixMillis {
    let expires_at = entry.expires_at.unwrap_or_default();
    let wait = if now < expires_at {
        now.since(accepted_at).max(retry.first).min(expires_at.since(now))
    } else {
        now.since(expires_at)
    };
    if now > deadline {
        return now.plus(wait);
    }
    let left = deadline.since(now);
    // The job that is published again waits up to the first delay longer.
    let most = back_within(left / 2).saturating_sub(retry.first);
    // Near the deadline the queue may be late in any case.
    let most = most.max(left / 8);
    now.plus(wait.min(most))
}

#[cfg(test)]
mod tests;
