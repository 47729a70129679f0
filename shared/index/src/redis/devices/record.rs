//! The record of a device, and chunks of them.
//!
//! A chunk is a sequence of records, one for each slot. A record is a length (one byte, or two
//! bytes with the high bit set) and a body of this length; a free slot has length 0. The body:
//!
//! | bytes | what |
//! |---|---|
//! | 6 | the epoch of the registration: when the device registered, Unix milliseconds, and six bits of a serial number |
//! | 1 | the carrier's code; the high bits say whether there are a token, a change of carrier and a profile |
//! | 0 or 8 | the change of carrier: the code of the carrier in whose partitions the device was before, when it changed, and the code of the one in whose partitions it is |
//! | 0 or 2 + n | the length of the profile, and the [profile](Section) |
//! | 1 + n | the length of the client id, and the client id |
//! | 6–18 | the codes of the six attributes, LEB128, 0 for none |
//! | 0 or 6 | when the device registered last, if its [transport](TransportKind::is_renewed) needs that |
//! | rest | the token |
//!
//! Scripts read and write everything up to the client id; the rest of a body is opaque to them.

use push_model::{
    attributes::Attribute,
    device::{Carrier, Device, Target, TransportKind},
    ids::ClientId,
    registration::{CarrierChange, RegistrationEpoch, Stamp, change_after},
    time::UnixMillis,
};
use push_store::IndexError;

use super::profile::Section;
use crate::redis::layout::{CHANGE_LEN, CHUNK_SLOTS, EPOCH_LEN, HAS_CHANGE, HAS_PROFILE, TIME_LEN};

/// The codes of a device's attributes, 0 for an attribute that it lacks.
pub(in crate::redis) type Codes = [u16; Attribute::COUNT];

const HAS_TOKEN: u8 = 0x80;
const LONG: u8 = 0x80;
/// The longest body that a length of two bytes can express.
const MAX_BODY: usize = 0x7fff;

/// A record of a chunk, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) struct Record<'a> {
    pub(super) stamp: Stamp,
    pub(super) codes: Codes,
    pub(super) carrier: Carrier,
    pub(super) change: Option<CarrierChange>,
    pub(in crate::redis) profile: Section<'a>,
    pub(super) client_id: &'a str,
    token: Option<&'a str>,
}

impl<'a> Record<'a> {
    /// The record of a device that has not changed its carrier.
    pub(super) fn of(device: &'a Device, codes: Codes, profile: Section<'a>, stamp: Stamp) -> Self {
        Self {
            stamp,
            codes,
            carrier: device.carrier(),
            change: None,
            profile,
            client_id: device.client_id.as_str(),
            token: device.token.as_deref(),
        }
    }

    /// The same with a change of carrier.
    pub(super) fn with_change(self, change: Option<CarrierChange>) -> Self {
        Self { change, ..self }
    }

    /// The same with another profile.
    pub(super) fn with_profile<'b>(self, profile: Section<'b>) -> Record<'b>
    where
        'a: 'b,
    {
        Record { profile, ..self }
    }

    /// Appends the record as it is stored.
    pub(super) fn encode(&self, chunk: &mut Vec<u8>) -> Result<(), IndexError> {
        let too_long = || too_long(self.client_id);
        let id_len = u8::try_from(self.client_id.len()).map_err(|_| too_long())?;
        let token = self.token.unwrap_or_default();
        let codes: usize = self.codes.iter().map(|code| leb128_len(*code)).sum();
        let change = if self.change.is_some() { CHANGE_LEN } else { 0 };
        let renewed = if self.transport().is_renewed() { TIME_LEN } else { 0 };
        let profile = self.profile.stored_len();
        let len = EPOCH_LEN + change + profile + 2 + self.client_id.len() + codes + renewed;
        let len = len + token.len();
        let len = u16::try_from(len).ok().filter(|len| usize::from(*len) <= MAX_BODY);
        match len.ok_or_else(too_long)?.to_be_bytes() {
            [0, low] if low < LONG => chunk.push(low),
            [high, low] => chunk.extend_from_slice(&[high | LONG, low]),
        }
        chunk.extend_from_slice(&epoch_bytes(self.stamp.epoch()));
        let has_token = if self.token.is_some() { HAS_TOKEN } else { 0 };
        let has_change = if self.change.is_some() { HAS_CHANGE } else { 0 };
        let has_profile = if self.profile.is_empty() { 0 } else { HAS_PROFILE };
        chunk.push(self.carrier.code() | has_token | has_change | has_profile);
        if let Some(CarrierChange { from, at, to }) = self.change {
            chunk.push(from.code());
            chunk.extend_from_slice(&time_bytes(at));
            chunk.push(to.code());
        }
        self.profile.encode(chunk);
        chunk.push(id_len);
        chunk.extend_from_slice(self.client_id.as_bytes());
        for code in self.codes {
            push_leb128(chunk, code);
        }
        if self.transport().is_renewed() {
            chunk.extend_from_slice(&time_bytes(self.stamp.renewed_at));
        }
        chunk.extend_from_slice(token.as_bytes());
        Ok(())
    }

    fn decode(mut body: &'a [u8]) -> Option<Self> {
        let (registered_at, serial) = read_epoch(take(&mut body, EPOCH_LEN)?).parts();
        let flags = take_byte(&mut body)?;
        let carrier = Carrier::from_code(flags & !HAS_TOKEN & !HAS_CHANGE & !HAS_PROFILE)?;
        let change = match flags & HAS_CHANGE {
            0 => None,
            _ => Some(CarrierChange {
                from: Carrier::from_code(take_byte(&mut body)?)?,
                at: read_time(take(&mut body, TIME_LEN)?),
                to: Carrier::from_code(take_byte(&mut body)?)?,
            }),
        };
        let profile = match flags & HAS_PROFILE {
            0 => Section::default(),
            _ => {
                let [high, low] = take(&mut body, 2)? else { return None };
                let len = u16::from_be_bytes([*high, *low]);
                Section::decode(take(&mut body, usize::from(len))?)?
            }
        };
        let id_len = take_byte(&mut body)?;
        let client_id = std::str::from_utf8(take(&mut body, usize::from(id_len))?).ok()?;
        let mut codes = Codes::default();
        for code in &mut codes {
            *code = take_leb128(&mut body)?;
        }
        let renewed_at = if carrier.kind().is_renewed() {
            read_time(take(&mut body, TIME_LEN)?)
        } else {
            registered_at
        };
        let token = match flags & HAS_TOKEN {
            0 => None,
            _ => Some(std::str::from_utf8(body).ok()?),
        };
        let stamp = Stamp { registered_at, serial, renewed_at };
        Some(Self { stamp, codes, carrier, change, profile, client_id, token })
    }

    pub(super) fn is_of(&self, client: &ClientId) -> bool {
        self.client_id == client.as_str()
    }

    /// Returns true if a registration of this device, with these codes and this profile, would change nothing.
    pub(super) fn is_same_as(
        &self,
        device: &Device,
        codes: Codes,
        profile: Section<'_>,
        now: UnixMillis,
    ) -> bool {
        let change = change_after(self.carrier, self.change, device.carrier(), now);
        let same = Record::of(device, codes, profile, self.stamp).with_change(change);
        !self.transport().is_renewed() && *self == same
    }

    pub(super) fn transport(&self) -> TransportKind {
        self.carrier.kind()
    }

    pub(super) fn token(&self) -> Option<&'a str> {
        self.token
    }

    pub(super) fn epoch(&self) -> RegistrationEpoch {
        self.stamp.epoch()
    }

    pub(super) fn target(&self) -> Result<Target, IndexError> {
        Ok(Target {
            client_id: self.client_id.parse().map_err(|_| unreadable())?,
            transport: self.transport(),
            token: self.token.map(Into::into),
            epoch: self.epoch(),
            user_id: self.profile.user_id(),
            language: None,
        })
    }
}

/// The records of a chunk, one item for each slot, `None` for a free one.
pub(super) fn records(chunk: &[u8]) -> Records<'_> {
    Records { rest: chunk, slots: CHUNK_SLOTS, broken: false }
}

/// See [`records`].
#[derive(Debug)]
pub(super) struct Records<'a> {
    rest: &'a [u8],
    /// The most slots that are left.
    slots: u32,
    /// The length of a record could not be read, so the records behind it cannot be found.
    broken: bool,
}

impl<'a> Records<'a> {
    /// The next slot's record, not decoded; `None` after the last slot.
    fn next_body(&mut self) -> Option<Result<&'a [u8], IndexError>> {
        self.slots = self.slots.checked_sub(1)?;
        if self.broken {
            return Some(Err(unreadable()));
        }
        let (first, mut rest) = self.rest.split_first()?;
        let mut body = || {
            let len = match first & LONG {
                0 => usize::from(*first),
                _ => usize::from(u16::from_be_bytes([first & !LONG, take_byte(&mut rest)?])),
            };
            take(&mut rest, len)
        };
        let body = body().ok_or_else(unreadable);
        self.broken = body.is_err();
        self.rest = rest;
        Some(body)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Option<Record<'a>>, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.next_body()? {
            Ok([]) => Ok(None),
            Ok(body) => Record::decode(body).map(Some).ok_or_else(unreadable),
            Err(error) => Err(error),
        })
    }

    /// Skips records without decoding them.
    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        for _ in 0..n {
            // The error of a broken chunk is returned again for the next slot.
            let _ = self.next_body()?;
        }
        self.next()
    }
}

/// A time as it is stored. The range of six bytes ends in the year 10889; later times are stored as
/// its end.
pub(super) fn time_bytes(time: UnixMillis) -> [u8; TIME_LEN] {
    let [_, _, bytes @ ..] = time.0.min((1 << 48) - 1).to_be_bytes();
    bytes
}

/// Reads a time that [`time_bytes`] wrote.
pub(super) fn read_time(bytes: &[u8]) -> UnixMillis {
    UnixMillis(read_number(bytes))
}

/// Returns an epoch as it is stored.
fn epoch_bytes(epoch: RegistrationEpoch) -> [u8; EPOCH_LEN] {
    let [_, _, bytes @ ..] = epoch.0.to_be_bytes();
    bytes
}

/// Reads an epoch of a record.
pub(super) fn read_epoch(bytes: &[u8]) -> RegistrationEpoch {
    RegistrationEpoch(read_number(bytes))
}

fn read_number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

const fn leb128_len(value: u16) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000.. => 3,
    }
}

fn push_leb128(out: &mut Vec<u8>, mut value: u16) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn take_leb128(bytes: &mut &[u8]) -> Option<u16> {
    let mut value = 0_u32;
    for shift in [0, 7, 14] {
        let byte = take_byte(bytes)?;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u16::try_from(value).ok();
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(len)?;
    *bytes = tail;
    Some(head)
}

fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (head, tail) = bytes.split_first()?;
    *bytes = tail;
    Some(*head)
}

fn unreadable() -> IndexError {
    IndexError::Corrupt("a device record".to_owned())
}

fn too_long(client_id: &str) -> IndexError {
    IndexError::Corrupt(format!("the record of {client_id} would be too long"))
}

#[cfg(test)]
mod tests;
