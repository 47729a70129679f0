//! Targeting on codes: each criterion becomes a table from code to match or no match. So a device costs
//! one table access a criterion, however many values the criterion has. The tables are made once for a
//! targeting and the dictionaries, kept in a cache for all scans of the broadcast ([`compiled`]), and
//! completed when codes come up that the dictionaries did not have. [`table`](super::table) has the tables, and
//! [`filter`](super::filter) combines those of a filter's leaves.
//!
//! [`compiled`]: super::compiled

use std::sync::Arc;

use push_model::{
    device::Carrier,
    filter::{self, Sample},
    ids::ClientId,
    registration::partition_of,
    targeting::Targeting,
    time::UnixMillis,
};

use super::{
    filter::{FilterPlan, Needed},
    slots::{BLOCK, Slots},
    table::{MATCH, NARROW, NO_MATCH, Table, UNKNOWN_CODE},
};
use crate::redis::{
    devices::record::{Codes, Record},
    layout::{carrier_byte, transport_of_byte},
};

/// A code came up that the dictionary did not have when the tables were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutdatedTables;

/// A targeting, a carrier and the latest time of registration, prepared for deciding.
#[derive(Debug, Clone)]
pub(super) struct Criteria {
    /// None if the carrier does not matter.
    carrier: Option<WantedCarrier>,
    /// Of the lists, then of the filter's leaves.
    tables: Arc<[Table]>,
    /// The number of lists.
    lists: usize,
    filter: Option<FilterPlan>,
    sample: Option<Sample>,
    registered_by: UnixMillis,
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

/// A part of a column: the codes of consecutive slots, as two planes of bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'a> {
    pub(super) low: &'a [u8],
    /// May be shorter than `low`: the missing high bytes are 0.
    pub(super) high: &'a [u8],
}

/// The devices in a range of slots that match, as the columns have them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Those that are left after each list and the ones before it, and at last after the filter.
    pub(super) after_each: Vec<u64>,
    /// Those that are left in the end, by their byte of the transport column.
    pub(super) by_byte: [u64; NARROW],
}

impl Criteria {
    /// Criteria that are lists, one for each table.
    pub(super) fn new(
        carrier: Option<Carrier>,
        tables: Arc<[Table]>,
        registered_by: UnixMillis,
    ) -> Self {
        let (carrier, lists) = (carrier.map(WantedCarrier::new), tables.len());
        Self { carrier, tables, lists, filter: None, sample: None, registered_by }
    }

    /// The same criteria with what a targeting has beside its lists. The last tables are those of the filter's leaves.
    pub(super) fn beside_lists(mut self, targeting: &Targeting) -> Self {
        if let Some(filter) = &targeting.filter {
            self.lists = self.tables.len().saturating_sub(filter.leaves().len());
            let (lists, leaves) = self.tables.split_at(self.lists);
            self.filter = Some(FilterPlan::new(Arc::clone(filter), lists, leaves));
        }
        self.sample.clone_from(&targeting.sample);
        self
    }

    /// The same criteria, where a code that the dictionary lacks has lost its value: it does not match, and neither does
    /// its opposite. The dictionary lacks a code that devices have only if it lost its last writes and the devices did not
    /// (they can be on other masters of a cluster); the value of the code cannot be found any more.
    pub(super) fn without_unknown(&self) -> Self {
        let mut tables = self.tables.to_vec();
        tables.iter_mut().for_each(Table::settle);
        Self { tables: tables.into(), ..self.clone() }
    }

    /// The attributes whose lists restrict.
    fn attributes(&self) -> impl Iterator<Item = filter::Column> {
        self.list_tables().iter().map(|table| table.column)
    }

    /// The columns that [`Criteria::candidates`] needs behind the carrier column, in order.
    pub(super) fn needed(&self) -> impl Iterator<Item = Needed<'_>> {
        let of_filter = self.filter.iter().flat_map(FilterPlan::needed);
        self.attributes().map(Needed::Codes).chain(of_filter)
    }

    /// Every column of which a dictionary is needed.
    pub(super) fn dictionary_columns(&self) -> impl Iterator<Item = filter::Column> {
        self.tables.iter().map(|table| table.column)
    }

    fn list_tables(&self) -> &[Table] {
        &self.tables[..self.lists]
    }

    /// Returns true if [`Criteria::candidates`] needs the carrier column, before all others.
    pub(super) fn has_carrier(&self) -> bool {
        self.carrier.is_some()
    }

    /// Returns how many columns [`Criteria::candidates`] needs. Without any, every slot is a
    /// candidate.
    pub(super) fn columns(&self) -> usize {
        usize::from(self.has_carrier()) + self.needed().count()
    }

    /// Returns true if values of devices restrict.
    pub(super) fn restricts(&self) -> bool {
        !self.tables.is_empty()
    }

    /// Returns true if the columns have to be read in one step: a code may have two bytes, or a device may match by one
    /// column before it changes and by another one then.
    pub(super) fn must_be_read_at_once(&self) -> bool {
        let several = self.filter.is_some() && self.needed().count() > 1;
        several || self.tables.iter().any(Table::is_wide)
    }

    /// Returns true if the columns do not tell which devices match, so that devices cannot be counted by them.
    pub(super) fn needs_records(&self) -> bool {
        self.sample.is_some() || self.negates_topics()
    }

    /// Returns true if a topic is wanted not to be there.
    pub(super) fn negates_topics(&self) -> bool {
        self.filter.as_ref().is_some_and(FilterPlan::negates_topics)
    }

    /// The slots that match by their columns, sorted and counted from where the columns begin. The
    /// columns are the carrier column and those that are [needed](Criteria::needed), of one segment at most; a slot beyond the
    /// end of the carrier column or of a list's does not match.
    ///
    /// Each list looks only at the slots that those before it left, and then the filter.
    pub(super) fn candidates(&self, columns: &[Column<'_>]) -> Result<Vec<u16>, OutdatedTables> {
        let needed = usize::from(self.has_carrier()) + self.lists;
        let reach = columns.iter().take(needed).map(|column| column.low.len()).min();
        // Only the columns of a filter are left, of which a shorter one has no values behind its end.
        let longest = || columns.iter().map(|column| column.low.len()).max();
        let reach = reach.or_else(longest).unwrap_or(0);
        let reach = u16::try_from(reach).unwrap_or(u16::MAX);
        let mut slots = Slots::new();
        let mut matching = Vec::new();
        for from in (0..reach).step_by(BLOCK) {
            slots.begin(from, reach.min(from.saturating_add(BLOCK as u16)));
            let mut columns = columns;
            if let Some(carrier) = &self.carrier
                && let Some((column, others)) = columns.split_first()
            {
                carrier.filter(column, &mut slots);
                columns = others;
            }
            for (table, column) in self.list_tables().iter().zip(columns) {
                slots.keep_by(table, column);
            }
            if let Some(filter) = &self.filter {
                filter.keep(&self.tables[self.lists..], columns, &mut slots);
            }
            matching.extend_from_slice(slots.left());
        }
        if slots.seen & UNKNOWN_CODE == 0 { Ok(matching) } else { Err(OutdatedTables) }
    }

    /// Counts the slots that match by their columns: those that are needed, without the transport
    /// column, whose bytes say which slots have a device. A device beyond the end of a column lacks the attribute. The
    /// sample does not count, because no column has client ids.
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
        let mut slots = Slots::new();
        let criteria = self.lists + usize::from(self.filter.is_some());
        let mut tally = Tally { after_each: vec![0; criteria], by_byte: [0; NARROW] };
        for from in (0..reach).step_by(BLOCK) {
            slots.begin(from, reach.min(from.saturating_add(BLOCK as u16)));
            slots.keep(|slot| has_device[usize::from(transports[slot])]);
            for ((table, column), left) in
                self.list_tables().iter().zip(columns).zip(&mut tally.after_each)
            {
                slots.keep_before(column.low.len());
                slots.keep_by(table, column);
                *left += slots.left().len() as u64;
            }
            if let Some(filter) = &self.filter {
                filter.keep(&self.tables[self.lists..], columns, &mut slots);
                let after = tally.after_each.last_mut();
                after.into_iter().for_each(|after| *after += slots.left().len() as u64);
            }
            for slot in slots.left() {
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
        if !self.accept_codes(&record.codes)? {
            return Ok(false);
        }
        if let Some(filter) = &self.filter
            && !filter.accepts(&self.tables[self.lists..], &record.codes, record.profile)?
        {
            return Ok(false);
        }
        let has = |sample: &Sample| {
            record.client_id.parse().is_ok_and(|client: ClientId| sample.has(&client))
        };
        Ok(self.sample.as_ref().is_none_or(has))
    }

    fn accept_codes(&self, codes: &Codes) -> Result<bool, OutdatedTables> {
        for table in self.list_tables() {
            let filter::Column::BuiltIn(attribute) = table.column else { return Ok(false) };
            match table.value_of(codes[attribute.index()]) {
                MATCH => {}
                UNKNOWN_CODE => return Err(OutdatedTables),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
