//! Reading devices by their slots.

use std::sync::Arc;

use push_model::{
    device::{Device, Target, TransportKind},
    ids::ClientId,
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
    transfer::Registration,
};
use push_sqlite::StoreError;
use rusqlite::{Connection, Row, params};
use tracing::warn;

use super::{
    criteria::{Criteria, CriteriaCache, FIRST_CODE},
    dictionary::{Codes, Decoder},
};
use crate::Scanned;

/// The only shard.
pub(super) const SHARD: u32 = 0;

/// The most devices that one call reads, so that rare matches do not keep a reader for long.
const MAX_READ: usize = 65_536;

/// The columns of a device, in the order that [`DeviceRow`] reads.
pub(super) const COLUMNS: &str = "slot, client, born, transport, token, country, language, brand, \
                                  model, os_version, app_version";

/// A device row.
pub(super) struct DeviceRow<'a>(pub(super) &'a Row<'a>);

impl DeviceRow<'_> {
    fn slot(&self) -> Result<u32, StoreError> {
        Ok(self.0.get(0)?)
    }

    fn born(&self) -> Result<UnixMillis, StoreError> {
        Ok(UnixMillis(self.0.get::<_, i64>(2)?.unsigned_abs()))
    }

    pub(super) fn target(&self) -> Result<Target, StoreError> {
        Ok(Target {
            client_id: self.client_id()?,
            transport: self.transport()?,
            token: self.0.get(4)?,
        })
    }

    pub(super) fn device(&self, dictionary: &mut Decoder<'_>) -> Result<Device, StoreError> {
        let mut codes = Codes::default();
        for (column, code) in (FIRST_CODE..).zip(&mut codes) {
            *code = self.0.get(column)?;
        }
        let Target { client_id, transport, token } = self.target()?;
        Ok(Device { client_id, attributes: dictionary.attributes(&codes)?, transport, token })
    }

    fn client_id(&self) -> Result<ClientId, StoreError> {
        let text = self.0.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        text.parse().map_err(|_| StoreError::Unreadable(format!("the client id {text:?}")))
    }

    fn transport(&self) -> Result<TransportKind, StoreError> {
        let code: u8 = self.0.get(3)?;
        TransportKind::from_code(code)
            .ok_or_else(|| StoreError::Unreadable(format!("a transport with code {code}")))
    }
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

/// Which devices a broadcast is for.
pub(super) struct Filter {
    criteria: Arc<Criteria>,
    registered_by: UnixMillis,
}

impl Filter {
    pub(super) fn read(
        cache: &CriteriaCache,
        sql: &Connection,
        app: i64,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Result<Self, StoreError> {
        Ok(Self { criteria: Criteria::of(cache, sql, app, targeting)?, registered_by })
    }

    fn accepts(&self, found: &DeviceRow<'_>) -> Result<bool, StoreError> {
        Ok(found.born()? <= self.registered_by && self.criteria.matches(found.0)?)
    }
}

/// The next devices that the filter accepts.
pub(super) fn targets(
    sql: &Connection,
    app: i64,
    range: SlotRange,
    filter: &Filter,
    limit: usize,
) -> Result<Scanned<Target>, StoreError> {
    if filter.criteria.matches_nothing() {
        return Ok(Scanned::default());
    }
    scan_slots(sql, app, range, limit, |found| {
        if filter.accepts(found)? { found.target().map(Some) } else { Ok(None) }
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
    scan_slots(sql, app, range, limit, |found| {
        let (device, registered_at) = (found.device(&mut dictionary)?, found.born()?);
        Ok(Some(Registration { device, registered_at }))
    })
}

/// How many devices the filter accepts.
pub(super) fn count(
    sql: &Connection,
    app: i64,
    range: SlotRange,
    filter: &Filter,
) -> Result<u64, StoreError> {
    let mut count = 0;
    let mut next = if filter.criteria.matches_nothing() { None } else { Some(range.from) };
    while let Some(from) = next {
        let rest = SlotRange { from, ..range };
        let met =
            scan_slots(sql, app, rest, MAX_READ, |found| Ok(filter.accepts(found)?.then_some(())))?;
        count += met.items.len() as u64 + met.unreadable;
        next = met.next;
    }
    Ok(count)
}

/// Reads a slot range until `take` returned `limit` devices, or [`MAX_READ`] devices were read.
fn scan_slots<T>(
    sql: &Connection,
    app: i64,
    range: SlotRange,
    limit: usize,
    mut take: impl FnMut(&DeviceRow<'_>) -> Result<Option<T>, StoreError>,
) -> Result<Scanned<T>, StoreError> {
    let mut scanned = Scanned::default();
    if range.shard != SHARD {
        return Ok(scanned);
    }
    let scan = format!(
        "SELECT {COLUMNS} FROM device WHERE app = ?1 AND slot >= ?2 AND slot < ?3 ORDER BY slot"
    );
    let mut statement = sql.prepare_cached(&scan)?;
    let mut rows = statement.query(params![app, range.from, range.to])?;
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
                warn!(slot, what, "a device whose record cannot be read");
                scanned.unreadable += 1;
            }
            Err(error) => return Err(error),
        }
        read += 1;
    }
    Ok(scanned)
}
