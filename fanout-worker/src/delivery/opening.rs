//! The ledger entry of a message, and its plan: there before the first device is sent to.

use push_model::{
    envelope::Job,
    ledger::{Claim, Entry, Opened, Plan},
    message::Audience,
    time::UnixMillis,
};
use tracing::info;

use super::plan;
use crate::{
    context::Context,
    control::{hold::Hold, waiting::GaveUp},
};

/// What opening an entry came to.
#[derive(Debug)]
pub(crate) enum Opening {
    /// The entry is this copy's, and planned.
    Open(Box<Entry>, Plan),
    /// The entry is another copy's and stays so: this copy is done with.
    Repeated,
    /// Another copy was accepted before. Should it end without being sent to any device, then this
    /// one is sent: to be looked at again at this time.
    After(UnixMillis),
}

/// What the entry of a message begins with.
pub(crate) fn opened(
    context: &Context,
    job: &Job,
    plan: Option<Plan>,
    claim: Option<Claim>,
) -> Opened {
    let head = &job.head;
    // A push to named devices needs no look at the index to be planned.
    let named = matches!(*job.audience, Audience::Clients(_)).then(Plan::named);
    Opened {
        message_id: head.message_id,
        app_id: head.app_id.clone(),
        accepted_at: head.accepted_at,
        expires_at: head.expires_at,
        copy: job.copy,
        keep_until: context.keep_until(job),
        plan: plan.or(named),
        claim,
        replaces: None,
    }
}

/// Opens the entry of a message and fixes its plan: the given one, or one cut now. `claim` is the
/// owner of partition 0 if the entry begins with this step.
pub(crate) async fn open(
    context: &Context,
    job: &Job,
    plan: Option<Plan>,
    claim: Option<Claim>,
    hold: &Hold<'_>,
) -> Result<Opening, GaveUp> {
    let head = &job.head;
    let mut opened = opened(context, job, plan, claim);
    let entry = loop {
        let open = || context.index.open(&opened);
        let entry = context.waiting.for_index(hold, open).await?.value;
        match entry.copy {
            Some(copy) if copy == job.copy => break entry,
            Some(copy)
                if opened.replaces != Some(copy)
                    && ends_after(job, &entry)
                    && ended_unsent(context, &entry) =>
            {
                opened.replaces = Some(copy);
            }
            _ if may_end_unsent(&entry, job) => {
                return Ok(Opening::After(next_look(entry.expires_at, context.now())));
            }
            _ => {
                info!(message_id = %head.message_id, "another copy of this request is the one that counts");
                return Ok(Opening::Repeated);
            }
        }
    };
    if let Some(plan) = entry.plan.clone() {
        return Ok(Opening::Open(Box::new(entry), plan));
    }
    let plan = match opened.plan.clone() {
        Some(plan) => plan,
        None => {
            let app = job.app();
            let extent = || context.index.extent(&app);
            let extent = context.waiting.for_index(hold, extent).await?.value;
            plan::cut(&extent, context.plan.partitions, context.plan.min_slots)
        }
    };
    let fix = || context.index.plan(&head.message_id, &plan);
    // No entry: it was lost just now. The claim, which comes next, opens it again.
    let plan = context.waiting.for_index(hold, fix).await?.value.unwrap_or(plan);
    Ok(Opening::Open(Box::new(entry), plan))
}

/// Whether a copy expired before any device was sent to: then a later copy of the same message is
/// what its producer waits for. One that stays open when it is over for a rest has no worker any
/// more: the index forgot how it ended.
fn ended_unsent(context: &Context, entry: &Entry) -> bool {
    let end = entry.expires_at.map(|at| {
        let now_or_never = entry.accepted_at.plus(context.run.now_window);
        at.max(now_or_never).plus(context.closing.rest)
    });
    let is_forgotten = end.is_some_and(|end| context.now() > end);
    entry.ended_unsent() || (!entry.is_closed() && is_forgotten && entry.is_unsent())
}

/// Whether this copy expires after the one that the entry is about. Only such a copy takes its
/// place: otherwise a late message of the first copy would replace the second one again.
fn ends_after(job: &Job, entry: &Entry) -> bool {
    entry.expires_at.is_some_and(|at| at < job.head.expires_at)
}

/// Whether a copy is still worked on that may expire before this one does.
fn may_end_unsent(entry: &Entry, job: &Job) -> bool {
    !entry.is_closed() && ends_after(job, entry) && entry.is_unsent()
}

/// When to look again at a copy that may end unsent: when it expires; then later and later, for
/// what of it is in work may take a while to be counted.
fn next_look(expires_at: Option<UnixMillis>, now: UnixMillis) -> UnixMillis {
    let expires_at = expires_at.unwrap_or_default();
    if now < expires_at { expires_at } else { now.plus(now.since(expires_at)) }
}
