//! A ledger entry in a few bytes.
//!
//! Most entries are of pushes to one device or a few: one partition, no leftovers, a handful of
//! counts. A store keeps such an entry as one short value. An entry with a plan of its own, or with
//! devices that are to be tried again, does not fit and is kept field by field.
//!
//! A record is a *head*, which every change is compared with (flags, deduplication nonce and state
//! of the partition), and behind it the times and the counts. Counts are pairs of a code and a
//! number; pairs with one code add up, so that a store adds to a record by writing behind it, and
//! reads none of it. Numbers are LEB128, seven bits a byte, except those that are random anyway.
//!
//! | part | what |
//! |---|---|
//! | flags | one byte: [`RECALLED`] |
//! | nonce | a number, the deduplication nonce; 0 for an id that was issued, which has one job |
//! | state | [`ENDED`]; or [`CLAIMED`] with claim, step and checkpoint; or [`FREE`] with the latter two |
//! | accepted | against the time in the id, its sign in the lowest bit |
//! | expires | after it was accepted: in seconds, or in milliseconds with the lowest bit set |
//! | counts | pairs to the end: outcomes, tries without one, the time of a recall |
//!
//! - `mod`: writing a record
//! - `decode`: reading one
//! - `leb128`: numbers

mod decode;
pub mod leb128;
#[cfg(test)]
mod tests;

pub use self::decode::{Preamble, decode, preamble};
use self::leb128::put;
use super::{Checkpoint, Claim, Counts, Entry, FailReason, PartitionState, Plan, RetryReason};
use crate::{ids::MessageId, time::UnixMillis};

/// In the flags: the message was recalled.
const RECALLED: u8 = 1;
/// In the flags: the entry is stored field by field, and this record stands for it.
const ELSEWHERE: u8 = 2;

const FREE: u8 = 0;
const CLAIMED: u8 = 1;
const ENDED: u8 = 2;

const SENT: u8 = 0;
const EXPIRED: u8 = 1;
const RECALLED_DEVICES: u8 = 2;
const RECALLED_AT: u8 = 3;
const FAILED: u8 = 16;
const RETRIED: u8 = 32;

/// The record that stands for an entry which is stored field by field.
pub const STUB: [u8; 1] = [ELSEWHERE];

/// The bytes are no record that this program can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no record of a ledger entry")]
pub struct BadRecord;

/// Returns true if the entry of this record is stored field by field.
pub fn is_stub(record: &[u8]) -> bool {
    record == STUB
}

/// The head of a record with this deduplication nonce and this state of the partition.
pub fn head(dedup_nonce: u64, state: &PartitionState, recalled: bool) -> Vec<u8> {
    let mut head = Vec::with_capacity(32);
    head.push(if recalled { RECALLED } else { 0 });
    put(&mut head, dedup_nonce);
    let PartitionState { claim, step, checkpoint } = state;
    if state.is_ended() {
        head.push(ENDED);
        return head;
    }
    match claim {
        None => head.push(FREE),
        Some(Claim { epoch, nonce, delivery, owner }) => {
            head.push(CLAIMED);
            put(&mut head, *epoch);
            head.extend_from_slice(&nonce.to_le_bytes());
            put(&mut head, u64::from(*delivery));
            head.extend_from_slice(&owner.to_le_bytes());
        }
    }
    put(&mut head, *step);
    match checkpoint {
        Checkpoint::End => put(&mut head, 0),
        Checkpoint::At { range, offset } => {
            put(&mut head, u64::from(*range) + 1);
            put(&mut head, u64::from(*offset));
        }
    }
    head
}

/// The times, which follow the head.
pub fn times(message: &MessageId, accepted_at: UnixMillis, expires_at: UnixMillis) -> Vec<u8> {
    let mut times = Vec::with_capacity(8);
    let base = message.time().unwrap_or_default();
    let sign = u64::from(accepted_at < base);
    put(&mut times, accepted_at.0.abs_diff(base.0) << 1 | sign);
    let life = expires_at.0.saturating_sub(accepted_at.0);
    let in_seconds = life.is_multiple_of(1000);
    put(&mut times, if in_seconds { (life / 1000) << 1 } else { life << 1 | 1 });
    times
}

/// Counts, to be appended to a record. A record counts only devices that have an outcome; the
/// caller makes sure that `targeted` is their number.
pub fn counts(counts: &Counts) -> Vec<u8> {
    let Counts { outcomes, retried, .. } = counts;
    let mut pairs = Vec::with_capacity(4);
    let named = [(SENT, outcomes.sent), (EXPIRED, outcomes.expired)];
    let named = named.into_iter().chain([(RECALLED_DEVICES, outcomes.recalled)]);
    let failed = outcomes.failed.iter().map(|(reason, count)| (failed_code(*reason), *count));
    let retried = retried.iter().map(|(reason, count)| (retried_code(*reason), *count));
    for (code, count) in named.chain(failed).chain(retried).filter(|(_, count)| *count > 0) {
        pairs.push(code);
        put(&mut pairs, count);
    }
    pairs
}

/// The record of an entry; none if it does not fit into one.
pub fn encode(entry: &Entry) -> Option<Vec<u8>> {
    let Entry { message_id, accepted_at, expires_at, dedup_nonce, recalled_at, .. } = entry;
    let partition = entry.partition(0);
    let fits = entry.plan.as_ref() == Some(&Plan::named())
        && entry.broadcast.is_none()
        && entry.partitions.keys().all(|number| *number == 0)
        && partition.leftovers.is_empty()
        && entry.targeted == entry.outcomes.total();
    let (Some(expires_at), Some(dedup_nonce), true) = (*expires_at, *dedup_nonce, fits) else {
        return None;
    };
    let mut record = head(dedup_nonce, &partition.state, recalled_at.is_some());
    record.extend(times(message_id, *accepted_at, expires_at));
    let (outcomes, retried) = (entry.outcomes.clone(), entry.retried.clone());
    record.extend(counts(&Counts { targeted: 0, outcomes, retried }));
    if let Some(at) = recalled_at {
        record.push(RECALLED_AT);
        put(&mut record, at.0);
    }
    Some(record)
}

fn failed_code(reason: FailReason) -> u8 {
    FAILED + position(&FailReason::ALL, reason)
}

fn retried_code(reason: RetryReason) -> u8 {
    RETRIED + position(&RetryReason::ALL, reason)
}

/// The index in the list of all, which is stored: new variants must be added at the end.
fn position<T: PartialEq>(all: &[T], one: T) -> u8 {
    (0..).zip(all).find(|(_, each)| **each == one).map_or(u8::MAX, |(position, _)| position)
}
