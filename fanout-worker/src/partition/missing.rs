//! Decides what to do with a message whose ledger entry is missing.
//!
//! A closed entry may be evicted to keep the ledger within its limit, even before the queue message
//! that closed it is acknowledged. If that message is delivered again, nothing more may be sent: a
//! crash repeats at most the batch in flight. An entry may also be missing because no worker has
//! begun it or because the ledger lost it. Then the message must be sent.
//!
//! Losing a push is worse than repeating it. So a missing entry counts as evicted only if that is
//! certain, or if nothing would be sent anyway. It is certain if the ledger remembers it, which it looks
//! up in the step that would begin the entry ([`Ledger::begin`](push_ledger::Ledger::begin)). Here are
//! the other cases.

use push_model::envelope::Job;

use crate::{
    context::Context,
    control::{hold::Hold, retrier::RetryError},
};

/// The facts about a message without an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MissingEntry {
    /// Entries of messages that were accepted at the same time as this one, or later, were evicted.
    /// This proves nothing about this message, which may have waited in the queue all the time.
    is_within_evicted: bool,
    /// Its run went on when this task was published, and would have begun a lost entry again.
    is_detached: bool,
    /// It is past its deadline by all clocks, so it is not sent any more.
    is_over: bool,
}

/// Decides whether the message has been processed, so that its entry is not begun again.
fn is_processed(missing: MissingEntry) -> bool {
    let MissingEntry { is_within_evicted, is_detached, is_over } = missing;
    is_within_evicted && (is_detached || is_over)
}

/// Returns true if the message is past its deadline by all clocks.
pub(crate) fn is_over(context: &Context, job: &Job) -> bool {
    context.now() > context.deadline(&job.head).plus(context.run.clock_allowance)
}

/// Determines whether a message without an entry has been processed.
pub(crate) async fn was_processed(
    context: &Context,
    job: &Job,
    is_detached: bool,
    hold: &Hold<'_>,
) -> Result<bool, RetryError> {
    let (head, app) = (&job.head, job.app());
    let is_over = is_over(context, job);
    let is_within_evicted = (is_detached || is_over) && {
        let read = || context.ledger.evicted_until(&app, &head.message_id);
        let until = context.retrier.ask_store(hold, read).await?.value;
        until.is_some_and(|until| head.accepted_at <= until)
    };
    Ok(is_processed(MissingEntry { is_within_evicted, is_detached, is_over }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: MissingEntry =
        MissingEntry { is_within_evicted: false, is_detached: false, is_over: false };

    #[test]
    fn a_message_that_may_have_waited_in_the_queue_is_begun() {
        assert!(!is_processed(UNKNOWN));
        assert!(!is_processed(MissingEntry { is_within_evicted: true, ..UNKNOWN }));
    }

    #[test]
    fn an_entry_that_the_index_lost_is_begun_again() {
        for (is_detached, is_over) in [(true, false), (false, true), (true, true)] {
            assert!(!is_processed(MissingEntry { is_detached, is_over, ..UNKNOWN }));
        }
    }

    #[test]
    fn a_task_beside_a_detached_run_and_an_expired_message_end_with_evicted_entries_of_their_age() {
        let within = MissingEntry { is_within_evicted: true, ..UNKNOWN };
        assert!(is_processed(MissingEntry { is_detached: true, ..within }));
        assert!(is_processed(MissingEntry { is_over: true, ..within }));
    }
}
