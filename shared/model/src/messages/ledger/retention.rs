//! Retention of ledger entries: a time for each kind of message, and a limit in bytes for all of
//! them. An entry goes when the first of the two is reached; for the limit only one that [may be
//! evicted](may_be_evicted).

use std::time::Duration;

use super::{Entry, Plan};
use crate::{
    app::AppKey,
    ids::{AudienceKind, MessageId, Origin},
    report,
    time::UnixMillis,
};

/// The retention of an entry after its message was accepted. It may be kept longer: a worker that
/// begins the message late counts from then, and the entries of one page expire together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// For a push to named devices. There are many, and each is small.
    pub named: Duration,
    /// For a broadcast.
    pub broadcast: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let day = Duration::from_hours(24);
        Self { named: 2 * day, broadcast: 7 * day }
    }
}

impl Retention {
    /// The same for both kinds.
    pub const fn all(time: Duration) -> Self {
        Self { named: time, broadcast: time }
    }

    /// For a message with this kind of audience.
    pub fn of(&self, kind: AudienceKind) -> Duration {
        match kind {
            AudienceKind::Named => self.named,
            AudienceKind::Broadcast => self.broadcast,
        }
    }

    /// For the message with this id. An id derived from an `Idempotency-Key` does not tell the kind
    /// of its audience, so the longer time applies.
    pub fn of_id(&self, message: &MessageId) -> Duration {
        message.audience_kind().map_or(self.named.max(self.broadcast), |kind| self.of(kind))
    }
}

/// The most that the clock which issued an id may be ahead.
const MAX_CLOCK_SKEW: Duration = Duration::from_mins(1);

/// Tells which messages without an entry may still wait for a worker. The entries of older messages
/// may have been deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// The retention of entries.
    pub retention: Retention,
    /// The latest time of acceptance among the entries that were evicted to stay within the limit;
    /// none if none was.
    pub evicted_until: Option<UnixMillis>,
}

impl Horizon {
    /// When a message without an entry was accepted, if its id says that it still waits for a
    /// worker. An id derived from an `Idempotency-Key` does not.
    pub fn waits_since(
        &self,
        app: &AppKey,
        message: &MessageId,
        now: UnixMillis,
    ) -> Option<UnixMillis> {
        let Origin::Issued(accepted_at) = message.origin(app) else { return None };
        // The checksum of an id needs no secret, so its time may be made up and in the future.
        let is_past = accepted_at <= now.plus(MAX_CLOCK_SKEW);
        let kept = is_past && now < accepted_at.plus(self.retention.of_id(message));
        let is_after = self.evicted_until.is_none_or(|until| accepted_at > until);
        (kept && is_after).then_some(accepted_at)
    }
}

/// The content of the ledger after the last round of keeping it within its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// When that was.
    pub measured_at: UnixMillis,
    /// The bytes of its entries: an estimate from some of them.
    pub bytes: u64,
    /// The most bytes that they may take.
    pub limit: u64,
    /// About when the oldest entry was begun; none if there is no entry.
    pub oldest: Option<UnixMillis>,
    /// The number of entries evicted so far to stay within the limit.
    pub evicted: u64,
}

/// The result of one round of keeping the ledger within its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictionRound {
    /// The present content of the ledger.
    pub history: History,
    /// It is above its limit, and another round can help.
    pub more: bool,
}

/// Returns true if an entry may be evicted to keep the ledger within its limit.
///
/// - A queue message can be delivered again after the entry was closed, because its acknowledgement
///   was lost. Without the entry, a push to named devices then repeats what was in flight. A
///   broadcast would begin anew, so its entry stays until the message has expired, after which
///   nothing of it is sent.
/// - No worker works on an entry that is [overdue](report::is_overdue) any more.
/// - The entry of a message that was recalled before any worker began it is never closed, and a
///   client of an app can make any number of them. It may be evicted
///   [`OVERDUE_AFTER`](report::OVERDUE_AFTER) the recall.
pub fn may_be_evicted(entry: &Entry, now: UnixMillis) -> bool {
    let is_named = entry.plan.as_ref() == Some(&Plan::named());
    let has_expired = entry.expires_at.is_some_and(|at| now > at);
    let is_old_early_recall =
        |at: UnixMillis| entry.dedup_nonce.is_none() && now > at.plus(report::OVERDUE_AFTER);
    entry.is_closed() && (is_named || has_expired)
        || report::is_overdue(entry, now)
        || entry.recalled_at.is_some_and(is_old_early_recall)
}

/// Time after its expiry in which a message may still be sent: with a time to live of 0 it is sent
/// for a moment, and the clock of a worker may be behind.
const SENT_AFTER_EXPIRY: Duration = Duration::from_mins(1);

/// Returns true if the ledger remembers the eviction of a closed entry: its message may still be sent.
pub fn is_eviction_remembered(expires_at: UnixMillis, now: UnixMillis) -> bool {
    now <= expires_at.plus(SENT_AFTER_EXPIRY)
}

/// The number by which the ledger remembers for a while that it evicted the closed entry of a job.
/// A queue message of that job that is delivered again then sends nothing. The checksum at the end of the id
/// does not count, because a ledger page does not keep it.
pub fn eviction_mark(message: &MessageId, dedup_nonce: u64) -> u64 {
    let (high, low) = message.as_uuid().as_u64_pair();
    let low = low & !u64::from(u32::MAX);
    // Two rounds of SplitMix64, so that ids which differ in a few bits have different marks.
    let mark = [low, dedup_nonce].into_iter().fold(high, |mark, more| {
        let mixed = (mark ^ more).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    });
    // The stores keep signed numbers in less space.
    mark >> 1
}
