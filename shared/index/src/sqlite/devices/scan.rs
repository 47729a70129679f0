//! Reading devices by their slots.

use std::sync::Arc;

use push_model::{
    attributes::Attribute,
    audience::AudienceCounts,
    device::{Carrier, Device, Target, TargetFields, TransportKind},
    filter::{Column, Sample},
    ids::{ClientId, UserId},
    registration::{CarrierChange, Serial, Stamp, partition_of},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
    transfer::Registration,
};
use push_sqlite::StoreError;
use rusqlite::{Connection, Row, params};
use tracing::warn;

use super::{
    criteria::Criteria,
    dictionary::{Codes, Decoder},
    profile::ProfileCodes,
};
use crate::{CarrierExtent, CountedSlice, DeviceTally, Scanned, TalliedSlice};

/// The only shard.
pub(super) const SHARD: u32 = 0;

/// The most devices that one call reads, so that rare matches do not keep a reader for long.
const MAX_READ: usize = 65_536;

/// The most devices that one slice of a count reads: some milliseconds.
const COUNTED_AT_ONCE: usize = 8192;

/// The columns of a device, in the order that [`DeviceRow`] reads.
pub(super) const COLUMNS: &str = "slot, client, born, transport, token, country, language, brand, \
                                  model, os_version, app_version, serial, renewed, \
                                  transport_before, transport_since, transport_partition, \
                                  custom, topics, user_id";

/// The first column with a code of an attribute.
const FIRST_CODE: usize = 5;

/// The carrier in whose partitions a device is, as the index of the table has it.
const PARTITION: &str = "ifnull(transport_partition, transport)";

/// A device row.
pub(super) struct DeviceRow<'a>(pub(super) &'a Row<'a>);

impl DeviceRow<'_> {
    fn slot(&self) -> Result<u32, StoreError> {
        Ok(self.0.get(0)?)
    }

    /// A column with a time, which may be NULL.
    fn time(&self, column: usize) -> Result<Option<UnixMillis>, StoreError> {
        let time: Option<i64> = self.0.get(column)?;
        Ok(time.map(|time| UnixMillis(time.unsigned_abs())))
    }

    pub(super) fn stamp(&self) -> Result<Stamp, StoreError> {
        let registered_at = self.time(2)?.unwrap_or_default();
        let renewed_at = self.time(12)?.unwrap_or(registered_at);
        Ok(Stamp {
            registered_at,
            serial: Serial::of(u64::from(self.0.get::<_, u8>(11)?)),
            renewed_at,
        })
    }

    pub(super) fn change(&self) -> Result<Option<CarrierChange>, StoreError> {
        let Some(from) = self.0.get(13)? else { return Ok(None) };
        let (at, to) = (self.time(14)?.unwrap_or_default(), self.0.get(15)?);
        Ok(Some(CarrierChange { from: carrier_of(from)?, at, to: carrier_of(to)? }))
    }

    /// The code of an attribute.
    pub(super) fn code(&self, attribute: Attribute) -> Result<Option<i64>, StoreError> {
        Ok(self.0.get(FIRST_CODE + attribute.index())?)
    }

    /// The codes of the six attributes.
    pub(super) fn codes(&self) -> Result<Codes, StoreError> {
        let mut codes = Codes::default();
        for (attribute, code) in Attribute::ALL.into_iter().zip(&mut codes) {
            *code = self.code(attribute)?;
        }
        Ok(codes)
    }

    pub(super) fn token(&self) -> Result<Option<Box<str>>, StoreError> {
        Ok(self.0.get(4)?)
    }

    /// What the app says of the device beside its user.
    pub(super) fn profile(&self) -> Result<ProfileCodes, StoreError> {
        ProfileCodes::of_columns(self.0, 16)
    }

    pub(super) fn user_id(&self) -> Result<Option<UserId>, StoreError> {
        let text = self.0.get_ref(18)?.as_str_or_null().map_err(rusqlite::Error::from)?;
        let unreadable = |_| StoreError::Unreadable(format!("the user id {text:?}"));
        text.map(str::parse).transpose().map_err(unreadable)
    }

    /// The device as delivery needs it.
    pub(super) fn target(
        &self,
        fields: TargetFields,
        dictionary: &mut Decoder<'_>,
    ) -> Result<Target, StoreError> {
        let language = match (fields, self.code(Attribute::Language)?) {
            (TargetFields::WithLanguage, Some(code)) => {
                dictionary.value(Column::BuiltIn(Attribute::Language), code)?
            }
            _ => None,
        };
        Ok(Target {
            client_id: self.client_id()?,
            transport: self.carrier()?.kind(),
            token: self.token()?,
            epoch: self.stamp()?.epoch(),
            user_id: self.user_id()?,
            language,
        })
    }

    pub(super) fn device(&self, dictionary: &mut Decoder<'_>) -> Result<Device, StoreError> {
        Ok(Device {
            client_id: self.client_id()?,
            attributes: dictionary.attributes(&self.codes()?)?,
            transport: self.carrier()?.kind(),
            token: self.token()?,
            profile: self.profile()?.profile(self.user_id()?, dictionary)?,
        })
    }

    pub(super) fn client_id(&self) -> Result<ClientId, StoreError> {
        let text = self.0.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        text.parse().map_err(|_| StoreError::Unreadable(format!("the client id {text:?}")))
    }

    pub(super) fn carrier(&self) -> Result<Carrier, StoreError> {
        carrier_of(self.0.get(3)?)
    }

    /// The transport in whose partitions the device is.
    fn partition(&self) -> Result<TransportKind, StoreError> {
        match self.0.get(15)? {
            Some(partition) => Ok(carrier_of(partition)?.kind()),
            None => Ok(self.carrier()?.kind()),
        }
    }
}

fn carrier_of(code: u8) -> Result<Carrier, StoreError> {
    Carrier::from_code(code)
        .ok_or_else(|| StoreError::Unreadable(format!("a carrier with code {code}")))
}

/// The slots that an app uses now.
pub(super) fn extent(sql: &Connection, app: i64) -> Result<Option<SlotRange>, StoreError> {
    // Two statements, because SQLite seeks one end of an index in a statement, but not both.
    let end = |which: &str| -> Result<Option<u32>, StoreError> {
        let find = format!("SELECT {which}(slot) FROM device WHERE app = ?1");
        Ok(sql.prepare_cached(&find)?.query_row([app], |row| row.get(0))?)
    };
    let (first, last) = (end("min")?, end("max")?);
    let range =
        |(from, last): (u32, u32)| SlotRange { shard: SHARD, from, to: last.saturating_add(1) };
    Ok(first.zip(last).map(range))
}

/// The slots that have devices in the partition of a carrier, as far as the indexes say.
fn carrier_extent(
    sql: &Connection,
    app: i64,
    carrier: Carrier,
) -> Result<Option<SlotRange>, StoreError> {
    let end = |which: &str, column: &str| -> Result<Option<u32>, StoreError> {
        let find = format!("SELECT {which}(slot) FROM device WHERE app = ?1 AND {column} = ?2");
        Ok(sql.prepare_cached(&find)?.query_row(params![app, carrier.code()], |row| row.get(0))?)
    };
    let mut slots = Vec::new();
    for column in [PARTITION, "transport_before"] {
        for which in ["min", "max"] {
            slots.extend(end(which, column)?);
        }
    }
    let range =
        |(from, last): (u32, u32)| SlotRange { shard: SHARD, from, to: last.saturating_add(1) };
    Ok(slots.iter().min().copied().zip(slots.iter().max().copied()).map(range))
}

/// The carriers of which the app has devices, and where.
pub(super) fn carriers(sql: &Connection, app: i64) -> Result<Vec<CarrierExtent>, StoreError> {
    let mut extents = Vec::new();
    for carrier in Carrier::ALL {
        let range = carrier_extent(sql, app, carrier)?;
        extents.extend(range.map(|range| CarrierExtent { carrier, ranges: vec![range] }));
    }
    Ok(extents)
}

/// The devices that a partition of a broadcast is for, by the codes of one app.
pub(super) struct Wanted {
    pub(super) carrier: Carrier,
    pub(super) criteria: Arc<Criteria>,
    pub(super) sample: Option<Sample>,
    pub(super) registered_by: UnixMillis,
}

impl Wanted {
    fn accepts(&self, found: &DeviceRow<'_>) -> Result<bool, StoreError> {
        let (by, carrier) = (self.registered_by, found.carrier()?);
        Ok(found.stamp()?.registered_at <= by
            && partition_of(carrier, found.change()?, by) == self.carrier
            && self.criteria.matches(found)?
            && match &self.sample {
                Some(sample) => sample.has(&found.client_id()?),
                None => true,
            })
    }
}

/// The next devices that are wanted.
pub(super) fn targets(
    sql: &Connection,
    app: i64,
    range: SlotRange,
    wanted: &Wanted,
    fields: TargetFields,
    limit: usize,
) -> Result<Scanned<Target>, StoreError> {
    if wanted.criteria.matches_nothing() {
        return Ok(Scanned::default());
    }
    let mut dictionary = Decoder::new(sql, app);
    scan_slots(sql, app, range, Some(wanted.carrier), limit, |found| {
        if !wanted.accepts(found)? {
            return Ok(None);
        }
        found.target(fields, &mut dictionary).map(Some)
    })
}

/// The full records of the next devices, and when they registered.
pub(super) fn registrations(
    sql: &Connection,
    app: i64,
    range: SlotRange,
    limit: usize,
) -> Result<Scanned<Registration>, StoreError> {
    let mut dictionary = Decoder::new(sql, app);
    scan_slots(sql, app, range, None, limit, |found| {
        let (device, stamp) = (found.device(&mut dictionary)?, found.stamp()?);
        Ok(Some(Registration { device, stamp }))
    })
}

/// Returns how many devices are wanted.
pub(super) fn count(
    sql: &Connection,
    app: i64,
    range: SlotRange,
    wanted: &Wanted,
) -> Result<u64, StoreError> {
    let mut count = 0;
    let mut next = if wanted.criteria.matches_nothing() { None } else { Some(range.from) };
    while let Some(from) = next {
        let rest = SlotRange { from, ..range };
        let met = scan_slots(sql, app, rest, Some(wanted.carrier), MAX_READ, |found| {
            Ok(wanted.accepts(found)?.then_some(()))
        })?;
        count += met.items.len() as u64 + met.unreadable;
        next = met.next;
    }
    Ok(count)
}

/// Counts the next devices of a range that match but for the sample, and those that are left after each criterion.
pub(super) fn audience(
    sql: &Connection,
    app: i64,
    range: SlotRange,
    criteria: &Criteria,
    targeting: &Targeting,
) -> Result<CountedSlice, StoreError> {
    let mut counts = AudienceCounts::none(targeting);
    let met = scan_slots(sql, app, range, None, COUNTED_AT_ONCE, |found| {
        let partition = found.partition()?;
        let held = criteria.held_by(found)?;
        let after_each = &mut counts.after_each_criterion;
        after_each.iter_mut().take(held).for_each(|after| after.devices += 1);
        if held == criteria.len() {
            counts.add_devices(partition, 1);
        }
        Ok(Some(()))
    })?;
    Ok(CountedSlice { counts, next: met.next })
}

/// Counts the next devices of a range by transport and by the values of an attribute.
pub(super) fn tally(
    sql: &Connection,
    app: i64,
    range: SlotRange,
    attribute: Attribute,
) -> Result<TalliedSlice, StoreError> {
    let mut dictionary = Decoder::new(sql, app);
    let mut tally = DeviceTally::default();
    let met = scan_slots(sql, app, range, None, COUNTED_AT_ONCE, |found| {
        let value = match found.code(attribute)? {
            Some(code) => dictionary.value(Column::BuiltIn(attribute), code)?,
            None => None,
        };
        tally.add_transport(found.partition()?, 1);
        tally.add_value(value, 1);
        Ok(Some(()))
    })?;
    Ok(TalliedSlice { tally, next: met.next })
}

/// Reads a slot range, or what it has for the partition of a carrier, until `take` returned `limit` devices, or [`MAX_READ`] devices were read.
fn scan_slots<T>(
    sql: &Connection,
    app: i64,
    range: SlotRange,
    carrier: Option<Carrier>,
    limit: usize,
    mut take: impl FnMut(&DeviceRow<'_>) -> Result<Option<T>, StoreError>,
) -> Result<Scanned<T>, StoreError> {
    let mut scanned = Scanned::default();
    if range.shard != SHARD {
        return Ok(scanned);
    }
    let all = |by: &str| {
        format!("SELECT {COLUMNS} FROM device WHERE app = ?1 AND slot >= ?2 AND slot < ?3 {by}")
    };
    // SQLite merges the two parts, which it reads in the order of their slots by their indexes.
    let scan = match carrier {
        None => format!("{} ORDER BY slot", all("")),
        Some(_) => format!(
            "{} UNION ALL {} ORDER BY slot",
            all(&format!("AND {PARTITION} = ?4")),
            all("AND transport_before = ?4"),
        ),
    };
    let mut statement = sql.prepare_cached(&scan)?;
    let mut rows = match carrier {
        None => statement.query(params![app, range.from, range.to])?,
        Some(carrier) => statement.query(params![app, range.from, range.to, carrier.code()])?,
    };
    let mut read = 0;
    while let Some(row) = rows.next()? {
        let found = DeviceRow(row);
        if read == MAX_READ || scanned.items.len() == limit.max(1) {
            scanned.next = Some(found.slot()?);
            break;
        }
        match take(&found) {
            Ok(taken) => scanned.items.extend(taken),
            Err(StoreError::Unreadable(what)) => {
                let slot = found.slot().ok();
                warn!(
                    runbook = "stored-records-cannot-be-read",
                    slot, what, "a device whose record cannot be read"
                );
                scanned.unreadable += 1;
            }
            Err(error) => return Err(error),
        }
        read += 1;
    }
    Ok(scanned)
}
