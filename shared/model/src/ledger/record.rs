//! A ledger entry in a few bytes.
//!
//! Most entries are of pushes to one device or a few: one partition, no leftovers, a handful of
//! counts. A store keeps such an entry as one short value. What has a plan of its own, or devices
//! that are to be tried again, does not fit and is kept field by field.
//!
//! A record is a *head*, which every change is compared with (flags, copy and state of the
//! partition), and behind it the times and the counts. Counts are pairs of a code and a number;
//! pairs with one code add up, so that a store adds to a record by writing behind it, and reads
//! none of it. Numbers are LEB128, seven bits a byte, except those that are random anyway.
//!
//! | part | what |
//! |---|---|
//! | flags | one byte: [`RECALLED`] |
//! | copy | a number; 0 for an id that was issued, which has one copy |
//! | state | [`ENDED`]; or [`CLAIMED`] with claim, step and checkpoint; or [`FREE`] with the latter two |
//! | accepted | against the time in the id, its sign in the lowest bit |
//! | expires | after it was accepted: in seconds, or in milliseconds with the lowest bit set |
//! | counts | pairs to the end: outcomes, tries without one, the time of a recall |

use std::collections::BTreeMap;

use super::{
    Checkpoint, Claim, Counts, Entry, FailReason, Outcomes, Partition, PartitionState, Plan,
    Retried, RetryReason,
};
use crate::{
    ids::{AppId, MessageId},
    time::UnixMillis,
};

/// In the flags: the message was recalled.
const RECALLED: u8 = 1;
/// In the flags: the entry is kept field by field, and this says so.
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

/// The record of an entry that is kept field by field.
pub const STUB: [u8; 1] = [ELSEWHERE];

/// A stored record that this program cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no record of a ledger entry")]
pub struct BadRecord;

/// Whether this record says that its entry is kept field by field.
pub fn is_stub(record: &[u8]) -> bool {
    record == STUB
}

/// The head of the records with this copy and this state of their partition.
pub fn head(copy: u64, state: &PartitionState, recalled: bool) -> Vec<u8> {
    let mut head = Vec::with_capacity(32);
    head.push(if recalled { RECALLED } else { 0 });
    put(&mut head, copy);
    let PartitionState { claim, step, checkpoint } = state;
    if state.is_ended() {
        head.push(ENDED);
        return head;
    }
    match claim {
        None => head.push(FREE),
        Some(Claim { generation, nonce, delivery, owner }) => {
            head.push(CLAIMED);
            put(&mut head, *generation);
            head.extend_from_slice(&nonce.to_le_bytes());
            put(&mut head, u64::from(*delivery));
            head.extend_from_slice(&owner.to_le_bytes());
        }
    }
    put(&mut head, *step);
    match checkpoint {
        Checkpoint::End => put(&mut head, 0),
        Checkpoint::At { slice, offset } => {
            put(&mut head, u64::from(*slice) + 1);
            put(&mut head, u64::from(*offset));
        }
    }
    head
}

/// What stands behind the head of a record that has counted nothing.
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

/// Counts, as they stand behind what was counted before. Whether they fit is the caller's to see:
/// a record counts only devices that have an outcome.
pub fn counts(counts: &Counts) -> Vec<u8> {
    let Counts { outcomes, retried, .. } = counts;
    let mut pairs = Vec::with_capacity(4);
    let named = [(SENT, outcomes.sent), (EXPIRED, outcomes.expired)];
    let named = named.into_iter().chain([(RECALLED_DEVICES, outcomes.recalled)]);
    let failed = outcomes.failed.iter().map(|(reason, count)| (failed(*reason), *count));
    let retried = retried.iter().map(|(reason, count)| (retried_code(*reason), *count));
    for (code, count) in named.chain(failed).chain(retried).filter(|(_, count)| *count > 0) {
        pairs.push(code);
        put(&mut pairs, count);
    }
    pairs
}

/// The record of an entry; none if it does not fit into one.
pub fn encode(entry: &Entry) -> Option<Vec<u8>> {
    let Entry { message_id, accepted_at, expires_at, copy, recalled_at, .. } = entry;
    let partition = entry.partition(0);
    let fits = entry.plan.as_ref() == Some(&Plan::named())
        && entry.partitions.keys().all(|number| *number == 0)
        && partition.leftovers.is_empty()
        && entry.targeted == entry.outcomes.total();
    let (Some(expires_at), Some(copy), true) = (*expires_at, *copy, fits) else { return None };
    let mut record = head(copy, &partition.state, recalled_at.is_some());
    record.extend(times(message_id, *accepted_at, expires_at));
    let (outcomes, retried) = (entry.outcomes.clone(), entry.retried.clone());
    record.extend(counts(&Counts { targeted: 0, outcomes, retried }));
    if let Some(at) = recalled_at {
        record.push(RECALLED_AT);
        put(&mut record, at.0);
    }
    Some(record)
}

/// What stands in front of the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Front {
    /// The message was recalled.
    pub recalled: bool,
    /// Its copy.
    pub copy: u64,
    /// The state of its partition.
    pub state: PartitionState,
    /// When it was accepted.
    pub accepted_at: UnixMillis,
    /// When it expires.
    pub expires_at: UnixMillis,
}

/// Reads the front of a record, whosever the message is.
///
/// # Errors
/// If it is none. That of an entry that is kept elsewhere is none either.
pub fn front(message: &MessageId, record: &[u8]) -> Result<Front, BadRecord> {
    Reader(record).front(message)
}

/// Reads a record.
///
/// # Errors
/// If it is none. One of an entry that is kept elsewhere is none either.
pub fn decode(app: &AppId, message: &MessageId, record: &[u8]) -> Result<Entry, BadRecord> {
    let mut rest = Reader(record);
    let Front { recalled, copy, state, accepted_at, expires_at } = rest.front(message)?;
    let mut entry = Entry {
        message_id: *message,
        app_id: app.clone(),
        accepted_at,
        expires_at: Some(expires_at),
        copy: Some(copy),
        recalled_at: None,
        plan: Some(Plan::named()),
        partitions: BTreeMap::new(),
        targeted: 0,
        outcomes: Outcomes::default(),
        retried: Retried::new(),
    };
    if state != PartitionState::default() {
        entry.partitions.insert(0, Partition { state, leftovers: Vec::new() });
    }
    while !rest.0.is_empty() {
        let (code, count) = (rest.byte()?, rest.number()?);
        let of = |code: u8, first: u8| code.checked_sub(first).map(usize::from);
        let Entry { outcomes, retried, recalled_at, .. } = &mut entry;
        let place = match code {
            SENT => &mut outcomes.sent,
            EXPIRED => &mut outcomes.expired,
            RECALLED_DEVICES => &mut outcomes.recalled,
            RECALLED_AT => {
                *recalled_at = Some(UnixMillis(count));
                continue;
            }
            _ if let Some(reason) = of(code, RETRIED).and_then(|at| RetryReason::ALL.get(at)) => {
                retried.entry(*reason).or_default()
            }
            _ if let Some(reason) = of(code, FAILED).and_then(|at| FailReason::ALL.get(at)) => {
                outcomes.failed.entry(*reason).or_default()
            }
            _ => return Err(BadRecord),
        };
        *place = place.checked_add(count).ok_or(BadRecord)?;
    }
    if recalled != entry.recalled_at.is_some() {
        return Err(BadRecord);
    }
    let Outcomes { sent, failed, expired, recalled } = &entry.outcomes;
    let all = failed.values().chain([sent, expired, recalled]);
    let total = all.copied().try_fold(0, u64::checked_add);
    entry.targeted = total.ok_or(BadRecord)?;
    Ok(entry)
}

/// Reads a number that [`put`] wrote, and gives what stands behind it.
///
/// # Errors
/// If there is none.
pub fn number(bytes: &[u8]) -> Result<(u64, &[u8]), BadRecord> {
    let mut rest = Reader(bytes);
    let number = rest.number()?;
    Ok((number, rest.0))
}

fn failed(reason: FailReason) -> u8 {
    FAILED + place(&FailReason::ALL, reason)
}

fn retried_code(reason: RetryReason) -> u8 {
    RETRIED + place(&RetryReason::ALL, reason)
}

/// Which of all it is. New ones are added at the end, or old records say something else.
fn place<T: PartialEq>(all: &[T], one: T) -> u8 {
    (0..).zip(all).find(|(_, each)| **each == one).map_or(u8::MAX, |(place, _)| place)
}

/// Writes a number as a record does: seven bits a byte, the lowest first.
pub fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn front(&mut self, message: &MessageId) -> Result<Front, BadRecord> {
        let recalled = match self.byte()? {
            0 => false,
            RECALLED => true,
            _ => return Err(BadRecord),
        };
        let (copy, state) = (self.number()?, self.state()?);
        let base = message.time().unwrap_or_default().0;
        let accepted = self.number()?;
        let (distance, is_before) = (accepted >> 1, accepted & 1 == 1);
        let accepted_at =
            if is_before { base.checked_sub(distance) } else { base.checked_add(distance) };
        let accepted_at = UnixMillis(accepted_at.ok_or(BadRecord)?);
        let life = self.number()?;
        let life = if life & 1 == 1 { Some(life >> 1) } else { (life >> 1).checked_mul(1000) };
        let expires_at = life.and_then(|life| accepted_at.0.checked_add(life)).ok_or(BadRecord)?;
        Ok(Front { recalled, copy, state, accepted_at, expires_at: UnixMillis(expires_at) })
    }

    fn byte(&mut self) -> Result<u8, BadRecord> {
        let (first, rest) = self.0.split_first().ok_or(BadRecord)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, BadRecord> {
        let mut number = 0_u64;
        for place in 0..10 {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * place);
            if shifted >> (7 * place) != bits {
                return Err(BadRecord);
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(BadRecord)
    }

    fn random(&mut self) -> Result<u64, BadRecord> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(BadRecord)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    fn small(&mut self) -> Result<u32, BadRecord> {
        u32::try_from(self.number()?).map_err(|_| BadRecord)
    }

    fn state(&mut self) -> Result<PartitionState, BadRecord> {
        let claim = match self.byte()? {
            ENDED => return Ok(PartitionState::ENDED),
            FREE => None,
            CLAIMED => {
                let (generation, nonce) = (self.number()?, self.random()?);
                let (delivery, owner) = (self.small()?, self.random()?);
                Some(Claim { generation, nonce, delivery, owner })
            }
            _ => return Err(BadRecord),
        };
        let step = self.number()?;
        let checkpoint = match self.small()?.checked_sub(1) {
            None => Checkpoint::End,
            Some(slice) => Checkpoint::At { slice, offset: self.small()? },
        };
        Ok(PartitionState { claim, step, checkpoint })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn app() -> AppId {
        "a".parse().unwrap()
    }

    fn entry(message: MessageId, state: PartitionState, outcomes: Outcomes) -> Entry {
        let accepted_at = message.time().unwrap_or(UnixMillis(1_700_000_000_000));
        Entry {
            message_id: message,
            app_id: app(),
            accepted_at,
            expires_at: Some(UnixMillis(accepted_at.0 + 3_600_000)),
            copy: Some(0),
            recalled_at: None,
            plan: Some(Plan::named()),
            partitions: BTreeMap::from([(0, Partition { state, leftovers: Vec::new() })]),
            targeted: outcomes.total(),
            outcomes,
            retried: Retried::new(),
        }
    }

    #[test]
    fn a_push_that_was_sent_to_one_device_takes_8_bytes() {
        let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
        let done = entry(MessageId::issue(&app()), PartitionState::ENDED, outcomes);
        let record = encode(&done).unwrap();
        assert_eq!(decode(&app(), &done.message_id, &record), Ok(done));
        assert_eq!(record.len(), 8);
    }

    #[test]
    fn counts_are_added_by_writing_behind_a_record() {
        let claim = Some(Claim { generation: 1, nonce: 2, delivery: 1, owner: 3 });
        let state = PartitionState { claim, ..PartitionState::default() };
        let begun = entry(MessageId::issue(&app()), state, Outcomes::default());
        let record = encode(&begun).unwrap();
        let old = head(0, &state, false);
        let outcomes = Outcomes { sent: 2, ..Outcomes::default() };
        let more = Counts { targeted: 2, outcomes: outcomes.clone(), retried: Retried::new() };
        let new = [
            &head(0, &PartitionState::ENDED, false)[..],
            record.strip_prefix(&old[..]).unwrap(),
            &counts(&more),
            &counts(&more),
        ]
        .concat();
        let read = decode(&app(), &begun.message_id, &new).unwrap();
        assert_eq!(
            (read.targeted, read.outcomes.sent, read.partition(0).state.is_ended()),
            (4, 4, true)
        );
    }

    #[test]
    fn what_does_not_fit_into_a_record_is_none() {
        let fits = entry(MessageId::issue(&app()), PartitionState::ENDED, Outcomes::default());
        assert!(encode(&fits).is_some());
        let planned = Plan { partitions: vec![vec![], vec![]] };
        for other in [
            Entry { plan: Some(planned), ..fits.clone() },
            Entry { plan: None, ..fits.clone() },
            Entry { targeted: 1, ..fits.clone() },
            Entry { copy: None, ..fits.clone() },
            Entry { expires_at: None, ..fits },
        ] {
            assert_eq!(encode(&other), None, "{other:?}");
        }
    }

    fn states() -> impl Strategy<Value = PartitionState> {
        let claims = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>());
        let claims = claims.prop_map(|(generation, nonce, delivery, owner)| Claim {
            generation,
            nonce,
            delivery,
            owner,
        });
        let checkpoints = (0..u32::MAX - 1, any::<u32>());
        let checkpoints = checkpoints.prop_map(|(slice, offset)| Checkpoint::At { slice, offset });
        let checkpoints = prop_oneof![Just(Checkpoint::End), checkpoints];
        (proptest::option::of(claims), any::<u64>(), checkpoints)
            .prop_map(|(claim, step, checkpoint)| PartitionState { claim, step, checkpoint })
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(
            state in states(),
            copy: u64,
            (late, life) in (-100_000_i64..100_000, 0_u64..1_u64 << 40),
            counts in proptest::collection::vec(0_u64..1_u64 << 40, 14),
            recalled in proptest::option::of(any::<u32>()),
            derived: bool,
        ) {
            let message = if derived {
                MessageId::from_idempotency_key(&app(), 0, b"k")
            } else {
                MessageId::issue(&app())
            };
            let mut outcomes =
                Outcomes { sent: counts[0], expired: counts[1], recalled: counts[2], ..Outcomes::default() };
            for (reason, count) in FailReason::ALL.into_iter().zip(&counts[3..]) {
                outcomes.failed.insert(reason, *count + 1);
            }
            let mut entry = entry(message, state, outcomes);
            entry.copy = Some(copy);
            entry.accepted_at = UnixMillis(entry.accepted_at.0.saturating_add_signed(late));
            entry.expires_at = Some(UnixMillis(entry.accepted_at.0 + life));
            entry.recalled_at = recalled.map(|at| UnixMillis(u64::from(at)));
            for (reason, count) in RetryReason::ALL.into_iter().zip(&counts[10..]) {
                entry.retried.insert(reason, *count + 1);
            }
            if state == PartitionState::default() {
                entry.partitions.clear();
            }
            let record = encode(&entry).unwrap();
            prop_assert!(record.starts_with(&head(copy, &state, recalled.is_some())));
            let front = front(&message, &record).unwrap();
            prop_assert_eq!((front.accepted_at, Some(front.expires_at)), (entry.accepted_at, entry.expires_at));
            prop_assert_eq!(decode(&app(), &message, &record), Ok(entry));
        }

        #[test]
        fn bytes_that_are_no_record_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&app(), &MessageId::issue(&app()), &bytes);
        }
    }
}
