//! How much of the past the ledger keeps: a time for each kind of message, and a bound in bytes for
//! all of them. Whichever comes first forgets an entry, and only one that is closed.

use std::time::Duration;

use super::{Entry, Plan};
use crate::{
    ids::{AppId, MessageId, Origin, Reach},
    report,
    time::UnixMillis,
};

/// How long an entry is kept after its message was accepted. (It may stay longer: a worker that begins
/// late counts from then on, and entries of a page go together.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// That of a push to named devices. There are many, and each is small.
    pub named: Duration,
    /// That of a broadcast.
    pub broadcast: Duration,
}

impl Retention {
    /// The same for both.
    pub const fn all(time: Duration) -> Self {
        Self { named: time, broadcast: time }
    }

    /// That of a message with this reach.
    pub fn of(&self, reach: Reach) -> Duration {
        match reach {
            Reach::Named => self.named,
            Reach::Broadcast => self.broadcast,
        }
    }

    /// That of a message, as far as its id tells: an id that was derived may be of either kind.
    pub fn of_id(&self, message: &MessageId) -> Duration {
        message.reach().map_or(self.named.max(self.broadcast), |reach| self.of(reach))
    }
}

/// How far the clock that an id was issued by may be ahead.
const CLOCKS_DIFFER: Duration = Duration::from_mins(1);

/// Which messages without an entry may still wait for a worker. The others are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// How long entries are kept.
    pub retention: Retention,
    /// Entries of messages that were accepted no later may have been forgotten to keep the bound in
    /// bytes; none was if there is no such time.
    pub forgotten_until: Option<UnixMillis>,
}

impl Horizon {
    /// When a message that has no entry was accepted, if it waits for a worker as far as its id
    /// tells. An id that was derived from an `Idempotency-Key` says nothing.
    pub fn waits_since(
        &self,
        app: &AppId,
        message: &MessageId,
        now: UnixMillis,
    ) -> Option<UnixMillis> {
        let Origin::Issued(accepted_at) = message.origin(app) else { return None };
        // The checksum of an id is no secret, so its time may be made up, and in the future.
        let is_past = accepted_at <= now.plus(CLOCKS_DIFFER);
        let kept = is_past && now < accepted_at.plus(self.retention.of_id(message));
        let is_after = self.forgotten_until.is_none_or(|until| accepted_at > until);
        (kept && is_after).then_some(accepted_at)
    }
}

/// What the ledger holds, as of the last round of keeping it within its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// When that was.
    pub measured_at: UnixMillis,
    /// What its entries take, in bytes: an estimate from some of them.
    pub bytes: u64,
    /// What they may take.
    pub limit: u64,
    /// About when the oldest entry that is kept was begun; none if there is none.
    pub oldest: Option<UnixMillis>,
    /// Entries that were forgotten so far to keep the bound.
    pub forgotten: u64,
}

/// What a round came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// What the ledger holds now.
    pub history: History,
    /// It holds more than it may, and another round can help.
    pub more: bool,
}

/// Whether the entry of a message may be forgotten to keep the ledger within its bound.
///
/// - A queue message may come again after the entry was closed: its acknowledgement was lost. For a
///   push to named devices that repeats what was in flight. A broadcast would begin anew, so its
///   entry stays until the message has expired, after which nothing of it is sent.
/// - What is left open long after it expired has no worker any more.
/// - The entry of a message that was recalled before any worker began it is never closed, and
///   an app can make any number of them. It may go after [`REST`](report::REST) as well.
pub fn may_be_forgotten(entry: &Entry, now: UnixMillis) -> bool {
    let is_named = entry.plan.as_ref() == Some(&Plan::named());
    let has_expired = entry.expires_at.is_some_and(|at| now > at);
    let was_recalled_ahead = |at: UnixMillis| entry.copy.is_none() && now > at.plus(report::REST);
    entry.is_closed() && (is_named || has_expired)
        || report::is_forgotten(entry, now)
        || entry.recalled_at.is_some_and(was_recalled_ahead)
}
