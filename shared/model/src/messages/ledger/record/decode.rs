//! Reading a record.

use std::collections::BTreeMap;

use super::{
    BadRecord, CLAIMED, ENDED, EXPIRED, FAILED, FREE, RECALLED, RECALLED_AT, RECALLED_DEVICES,
    RETRIED, SENT, leb128,
};
use crate::{
    ids::{AppId, MessageId},
    ledger::{
        Checkpoint, Claim, Entry, FailReason, Outcomes, Partition, PartitionState, Plan, Retried,
        RetryReason,
    },
    time::UnixMillis,
};

/// The part of a record in front of its counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// The message was recalled.
    pub recalled: bool,
    /// The deduplication nonce.
    pub dedup_nonce: u64,
    /// The state of its partition.
    pub state: PartitionState,
    /// When it was accepted.
    pub accepted_at: UnixMillis,
    /// When it expires.
    pub expires_at: UnixMillis,
}

/// Reads the preamble of a record, which does not need the app.
///
/// # Errors
/// If the bytes are no record, or the entry is stored field by field.
pub fn preamble(message: &MessageId, record: &[u8]) -> Result<Preamble, BadRecord> {
    Reader(record).preamble(message)
}

/// Reads a record.
///
/// # Errors
/// As [`preamble`].
pub fn decode(app: &AppId, message: &MessageId, record: &[u8]) -> Result<Entry, BadRecord> {
    let mut rest = Reader(record);
    let Preamble { recalled, dedup_nonce, state, accepted_at, expires_at } =
        rest.preamble(message)?;
    let mut entry = Entry {
        message_id: *message,
        app_id: app.clone(),
        accepted_at,
        expires_at: Some(expires_at),
        dedup_nonce: Some(dedup_nonce),
        recalled_at: None,
        plan: Some(Plan::named()),
        partitions: BTreeMap::new(),
        targeted: 0,
        outcomes: Outcomes::default(),
        retried: Retried::new(),
        broadcast: None,
    };
    if state != PartitionState::default() {
        entry.partitions.insert(0, Partition { state, leftovers: Vec::new() });
    }
    while !rest.0.is_empty() {
        let (code, count) = (rest.byte()?, rest.number()?);
        let of = |code: u8, first: u8| code.checked_sub(first).map(usize::from);
        let Entry { outcomes, retried, recalled_at, .. } = &mut entry;
        let counter = match code {
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
        *counter = counter.checked_add(count).ok_or(BadRecord)?;
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

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn preamble(&mut self, message: &MessageId) -> Result<Preamble, BadRecord> {
        let recalled = match self.byte()? {
            0 => false,
            RECALLED => true,
            _ => return Err(BadRecord),
        };
        let (dedup_nonce, state) = (self.number()?, self.state()?);
        let base = message.time().unwrap_or_default().0;
        let accepted = self.number()?;
        let (distance, is_before) = (accepted >> 1, accepted & 1 == 1);
        let accepted_at =
            if is_before { base.checked_sub(distance) } else { base.checked_add(distance) };
        let accepted_at = UnixMillis(accepted_at.ok_or(BadRecord)?);
        let life = self.number()?;
        let life = if life & 1 == 1 { Some(life >> 1) } else { (life >> 1).checked_mul(1000) };
        let expires_at = life.and_then(|life| accepted_at.0.checked_add(life)).ok_or(BadRecord)?;
        Ok(Preamble {
            recalled,
            dedup_nonce,
            state,
            accepted_at,
            expires_at: UnixMillis(expires_at),
        })
    }

    fn byte(&mut self) -> Result<u8, BadRecord> {
        let (first, rest) = self.0.split_first().ok_or(BadRecord)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, BadRecord> {
        let (number, rest) = leb128::read(self.0)?;
        self.0 = rest;
        Ok(number)
    }

    fn random(&mut self) -> Result<u64, BadRecord> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(BadRecord)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    fn number_u32(&mut self) -> Result<u32, BadRecord> {
        u32::try_from(self.number()?).map_err(|_| BadRecord)
    }

    fn state(&mut self) -> Result<PartitionState, BadRecord> {
        let claim = match self.byte()? {
            ENDED => return Ok(PartitionState::ENDED),
            FREE => None,
            CLAIMED => {
                let (epoch, nonce) = (self.number()?, self.random()?);
                let (delivery, owner) = (self.number_u32()?, self.random()?);
                Some(Claim { epoch, nonce, delivery, owner })
            }
            _ => return Err(BadRecord),
        };
        let step = self.number()?;
        let checkpoint = match self.number_u32()?.checked_sub(1) {
            None => Checkpoint::End,
            Some(range) => Checkpoint::At { range, offset: self.number_u32()? },
        };
        Ok(PartitionState { claim, step, checkpoint })
    }
}
