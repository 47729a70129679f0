//! Targeting on codes: each criterion becomes a table from code to match or no match. So a device costs
//! one table access a criterion, however many values the criterion has. The tables are made once for a
//! targeting and the dictionaries, kept in a cache for all scans of the broadcast ([`compiled`]), and
//! completed when codes come up that the dictionaries did not have.
//!
//! [`compiled`]: super::compiled

use std::sync::Arc;

use push_model::{
    attributes::Attribute, device::Carrier, registration::partition_of, targeting::Targeting,
    time::UnixMillis,
};

use crate::redis::{
    devices::record::{Codes, Record},
    dictionary::Dictionary,
    layout::{carrier_byte, transport_of_byte},
};

// The values of a table: single bits, because a scan ORs those that it has seen.
/// A device with this code does not match.
const NO_MATCH: u8 = 0;
/// A device with this code matches.
const MATCH: u8 = 1;
/// The dictionary did not have this code when the table was made.
const UNKNOWN_CODE: u8 = 2;

/// A code came up that the dictionary did not have when the tables were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutdatedTables;

/// A targeting, a carrier and the latest time of registration, prepared for deciding.
#[derive(Debug, Clone)]
pub(super) struct Criteria {
    /// None if the carrier does not matter.
    carrier: Option<WantedCarrier>,
    tables: Arc<[Table]>,
    registered_by: UnixMillis,
}

/// One criterion: for each code in the dictionary, whether a device with it matches. It covers at least
/// the codes of one byte.
#[derive(Debug, Clone)]
pub(in crate::redis) struct Table {
    pub(super) attribute: Attribute,
    by_code: Vec<u8>,
    /// The value for codes beyond the end of `by_code`.
    otherwise: u8,
}

/// A carrier, and for each byte of the carrier column whether a device with it may belong to its partition.
#[derive(Debug, Clone)]
struct WantedCarrier {
    carrier: Carrier,
    by_byte: [u8; NARROW],
}

impl WantedCarrier {
    fn new(carrier: Carrier) -> Self {
        let code = carrier_byte(carrier, None);
        let value_of = |byte: usize| {
            let may_belong = byte & 0xf == usize::from(code) || byte >> 4 == usize::from(code);
            if may_belong { MATCH } else { NO_MATCH }
        };
        Self { carrier, by_byte: std::array::from_fn(value_of) }
    }

    /// Keeps the slots that may belong.
    fn filter(&self, column: &Column<'_>, slots: &mut Slots) {
        slots.keep(|slot| self.by_byte[usize::from(column.low[slot])]);
    }
}

/// The number of codes that one byte can express.
const NARROW: usize = 1 << 8;

/// Slots to which all criteria are applied before the next slots are looked at, so that the slots
/// that are left stay in the processor's nearest cache.
const BLOCK: usize = 4096;

/// A part of a column: the codes of consecutive slots, as two planes of bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'a> {
    pub(super) low: &'a [u8],
    /// May be shorter than `low`: the missing high bytes are 0.
    pub(super) high: &'a [u8],
}

impl Table {
    /// A table that knows no code but 0: that the device lacks the attribute.
    pub(super) fn new(attribute: Attribute) -> Self {
        Self::of(attribute, vec![NO_MATCH])
    }

    fn of(attribute: Attribute, mut by_code: Vec<u8>) -> Self {
        by_code.resize(by_code.len().max(NARROW), UNKNOWN_CODE);
        Self { attribute, by_code, otherwise: UNKNOWN_CODE }
    }

    /// Decides about those codes from `from` to before `to` that the table does not know and the
    /// dictionary does.
    pub(super) fn complete(
        &mut self,
        targeting: &Targeting,
        known: &Dictionary,
        from: usize,
        to: usize,
    ) {
        let attribute = self.attribute;
        let wants = |value: &str| targeting.wants(attribute, value);
        self.decide(known, from, to, wants);
    }

    /// As [`Table::complete`], for a targeting that wants none of the values: those that it wants
    /// follow with [`Table::look_up`].
    pub(super) fn rule_out(&mut self, known: &Dictionary, from: usize, to: usize) {
        self.decide(known, from, to, |_| false);
    }

    /// Decides that devices with one of these values match, if the table covers its code.
    pub(super) fn look_up(&mut self, wanted: &[Box<str>], known: &Dictionary) {
        for value in wanted {
            if let Some(code) = known.code(value).filter(|code| known.has(*code, value))
                && let Some(decided) = self.by_code.get_mut(usize::from(code))
            {
                *decided = MATCH;
            }
        }
    }

    /// Returns how many codes below this one the table does not cover. It covers [`NARROW`] from
    /// the beginning.
    pub(super) fn missing(&self, codes: usize) -> usize {
        codes.saturating_sub(self.by_code.len())
    }

    fn decide(&mut self, known: &Dictionary, from: usize, to: usize, wants: impl Fn(&str) -> bool) {
        let to = to.min(known.values().len() + 1);
        if self.by_code.len() < to {
            self.by_code.resize(to, UNKNOWN_CODE);
        }
        let codes = self.by_code.iter_mut().enumerate().take(to).skip(from.max(1));
        let values = known.values().skip(from.max(1) - 1);
        for ((_, decided), value) in codes.zip(values).filter(|((_, v), _)| **v == UNKNOWN_CODE) {
            if let Some(value) = value {
                *decided = if wants(value) { MATCH } else { NO_MATCH };
            }
        }
    }

    /// Returns how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.by_code.len()
    }

    /// Returns what is decided about each code.
    #[cfg(test)]
    pub(super) fn decisions(&self) -> &[u8] {
        &self.by_code
    }

    fn value_of(&self, code: u16) -> u8 {
        self.by_code.get(usize::from(code)).copied().unwrap_or(self.otherwise)
    }

    /// Keeps the slots that match.
    fn filter(&self, column: &Column<'_>, slots: &mut Slots) {
        let Column { low, high } = column;
        match self.by_code.first_chunk::<NARROW>() {
            Some(narrow) if high.is_empty() => slots.keep(|slot| narrow[usize::from(low[slot])]),
            _ => slots.keep(|slot| {
                let high = high.get(slot).copied().unwrap_or(0);
                self.value_of(u16::from_be_bytes([high, low[slot]]))
            }),
        }
    }
}

/// The slots of a block that match the criteria applied so far.
struct Slots {
    /// Before the first criterion: all slots from the first to before the second.
    all: Option<(u16, u16)>,
    /// After it: the first `count` of these, in order.
    left: [u16; BLOCK],
    count: usize,
    /// The values of all slots that were looked at, ORed.
    seen: u8,
}

impl Slots {
    /// Keeps those slots that were kept before and are before this one.
    fn keep_before(&mut self, end: usize) {
        let kept = &self.left[..self.count];
        self.count = kept.partition_point(|slot| usize::from(*slot) < end);
    }

    /// Keeps the slots whose value is [`MATCH`]. The loops do not branch on the value, because a
    /// processor cannot predict which slots match.
    fn keep(&mut self, value_of: impl Fn(usize) -> u8) {
        let mut kept = 0;
        let mut look = |left: &mut [u16; BLOCK], slot: u16| {
            let value = value_of(usize::from(slot));
            self.seen |= value;
            left[kept] = slot;
            kept += usize::from(value == MATCH);
        };
        if let Some((from, to)) = self.all.take() {
            (from..to).for_each(|slot| look(&mut self.left, slot));
        } else {
            for at in 0..self.count {
                let slot = self.left[at];
                look(&mut self.left, slot);
            }
        }
        self.count = kept;
    }
}

/// The devices in a range of slots that match, as the columns have them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Those that are left after each criterion and the ones before it.
    pub(super) after_each: Vec<u64>,
    /// Those that are left in the end, by their byte of the transport column.
    pub(super) by_byte: [u64; NARROW],
}

impl Criteria {
    pub(super) fn new(
        carrier: Option<Carrier>,
        tables: Arc<[Table]>,
        registered_by: UnixMillis,
    ) -> Self {
        Self { carrier: carrier.map(WantedCarrier::new), tables, registered_by }
    }

    /// The same criteria, where a code that the dictionary lacks does not match. The dictionary
    /// lacks a code that devices have only if it lost its last writes and the devices did not (they
    /// can be on other masters of a cluster); the value of the code cannot be found any more.
    pub(super) fn without_unknown(&self) -> Self {
        let mut tables = self.tables.to_vec();
        for table in &mut tables {
            table.otherwise = NO_MATCH;
            table.by_code.iter_mut().filter(|v| **v == UNKNOWN_CODE).for_each(|v| *v = NO_MATCH);
        }
        Self { tables: tables.into(), ..self.clone() }
    }

    /// The attributes that restrict, whose columns [`Criteria::candidates`] needs.
    pub(super) fn attributes(&self) -> impl Iterator<Item = Attribute> {
        self.tables.iter().map(|table| table.attribute)
    }

    /// Returns true if [`Criteria::candidates`] needs the carrier column, before all others.
    pub(super) fn has_carrier(&self) -> bool {
        self.carrier.is_some()
    }

    /// Returns how many columns [`Criteria::candidates`] needs. Without any, every slot is a
    /// candidate.
    pub(super) fn columns(&self) -> usize {
        usize::from(self.has_carrier()) + self.tables.len()
    }

    /// Returns true if one of these attributes has more values than one byte can express.
    pub(super) fn expect_high_bytes(&self) -> bool {
        self.tables.iter().any(|table| table.by_code.len() > NARROW)
    }

    /// The slots that match by their columns, sorted and counted from where the columns begin. The
    /// columns are the carrier column and those of the attributes that restrict, of one segment at most; a slot beyond the
    /// end of a column does not match.
    ///
    /// Each criterion looks only at the slots that those before it left.
    pub(super) fn candidates(&self, columns: &[Column<'_>]) -> Result<Vec<u16>, OutdatedTables> {
        let reach = columns.iter().map(|column| column.low.len()).min().unwrap_or(0);
        let reach = u16::try_from(reach).unwrap_or(u16::MAX);
        let mut slots = Slots { all: None, left: [0; BLOCK], count: 0, seen: 0 };
        let mut matching = Vec::new();
        for from in (0..reach).step_by(BLOCK) {
            slots.all = Some((from, reach.min(from.saturating_add(BLOCK as u16))));
            let mut columns = columns.iter();
            if let Some(carrier) = &self.carrier
                && let Some(column) = columns.next()
            {
                carrier.filter(column, &mut slots);
            }
            for (table, column) in self.tables.iter().zip(columns) {
                table.filter(column, &mut slots);
            }
            matching.extend_from_slice(&slots.left[..slots.count]);
        }
        if slots.seen & UNKNOWN_CODE == 0 { Ok(matching) } else { Err(OutdatedTables) }
    }

    /// Counts the slots that match by their columns: those of the attributes that restrict, without the transport
    /// column, whose bytes say which slots have a device. A device beyond the end of a column lacks the attribute.
    pub(super) fn tally(
        &self,
        columns: &[Column<'_>],
        transports: &[u8],
    ) -> Result<Tally, OutdatedTables> {
        let reach = u16::try_from(transports.len()).unwrap_or(u16::MAX);
        let has_device: [u8; NARROW] = std::array::from_fn(|byte| {
            let kind = u8::try_from(byte).ok().and_then(transport_of_byte);
            if kind.is_some() { MATCH } else { NO_MATCH }
        });
        let mut slots = Slots { all: None, left: [0; BLOCK], count: 0, seen: 0 };
        let mut tally = Tally { after_each: vec![0; self.tables.len()], by_byte: [0; NARROW] };
        for from in (0..reach).step_by(BLOCK) {
            slots.all = Some((from, reach.min(from.saturating_add(BLOCK as u16))));
            slots.keep(|slot| has_device[usize::from(transports[slot])]);
            for ((table, column), left) in
                self.tables.iter().zip(columns).zip(&mut tally.after_each)
            {
                slots.keep_before(column.low.len());
                table.filter(column, &mut slots);
                *left += slots.count as u64;
            }
            for slot in &slots.left[..slots.count] {
                tally.by_byte[usize::from(transports[usize::from(*slot)])] += 1;
            }
        }
        if slots.seen & UNKNOWN_CODE == 0 { Ok(tally) } else { Err(OutdatedTables) }
    }

    /// Returns true if the device with this record matches.
    pub(super) fn accept(&self, record: &Record<'_>) -> Result<bool, OutdatedTables> {
        if record.stamp.registered_at > self.registered_by {
            return Ok(false);
        }
        if let Some(WantedCarrier { carrier, .. }) = self.carrier
            && partition_of(record.carrier, record.change, self.registered_by) != carrier
        {
            return Ok(false);
        }
        self.accept_codes(&record.codes)
    }

    fn accept_codes(&self, codes: &Codes) -> Result<bool, OutdatedTables> {
        for table in &*self.tables {
            match table.value_of(codes[table.attribute.index()]) {
                MATCH => {}
                NO_MATCH => return Ok(false),
                _ => return Err(OutdatedTables),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
