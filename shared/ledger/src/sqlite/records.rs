//! Entries as records: one short row each.
//!
//! Open and closed entries have tables of their own, so that the oldest closed entries are found
//! without reading open ones, and so that closed ones, which are kept for long, are written once
//! and packed:
//! - `begun`: open entries. There are as many as are being worked on.
//! - `finished`: closed entries with an issued id. The key is app and id, which begins with its
//!   time, so the rows of an app are appended and its oldest come first.
//! - `finished_derived`: closed entries with an id derived from an `Idempotency-Key`. Such an id
//!   has no time, so these rows are in the order in which they were closed, with an index by id.
//!   They have the time of acceptance in a column, by which they are listed, and take three times the space.
//!
//! The key begins with the number of the app, so that each app has its oldest entries first. A row has
//! the end of the entry's retention in hours after the time in the id, rounded up, as LEB128, and the
//! record ([`record`]).

use push_model::{
    ids::{AppId, MessageId},
    ledger::{
        Entry,
        record::{self, BadRecord},
    },
    time::UnixMillis,
};
use push_sqlite::StoreError;
use push_store::sqlite::execute;
use rusqlite::{Connection, OptionalExtension, params};

use super::{bits, unreadable};

const HOUR: u64 = 3_600_000;

/// The table of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordTable {
    Begun,
    Finished,
    FinishedDerived,
}

impl RecordTable {
    fn of(message: &MessageId, is_closed: bool) -> Self {
        match (is_closed, message.time()) {
            (false, _) => Self::Begun,
            (true, Some(_)) => Self::Finished,
            (true, None) => Self::FinishedDerived,
        }
    }
}

/// The parts of a row's bytes.
struct RowBytes<'a> {
    kept_until: UnixMillis,
    record: &'a [u8],
}

impl<'a> RowBytes<'a> {
    fn read(message: &MessageId, bytes: &'a [u8]) -> Result<Self, BadRecord> {
        let (hours, record) = record::leb128::read(bytes)?;
        let base = message.time().unwrap_or_default().0;
        let kept_until = UnixMillis(base.saturating_add(hours.saturating_mul(HOUR)));
        Ok(Self { kept_until, record })
    }

    fn write(message: &MessageId, kept_until: UnixMillis, record: &[u8]) -> Vec<u8> {
        let base = message.time().unwrap_or_default().0;
        let mut bytes = Vec::with_capacity(record.len() + 4);
        record::leb128::put(&mut bytes, kept_until.0.saturating_sub(base).div_ceil(HOUR));
        bytes.extend_from_slice(record);
        bytes
    }
}

/// An entry that is stored as a record.
#[derive(Debug)]
pub(super) struct StoredRecord {
    pub(super) table: RecordTable,
    pub(super) kept_until: UnixMillis,
    pub(super) entry: Box<Entry>,
}

/// The parts of a row that decide whether it is deleted.
#[derive(Debug)]
pub(super) struct RecordRow {
    pub(super) message: MessageId,
    pub(super) accepted_at: UnixMillis,
    pub(super) kept_until: UnixMillis,
    pub(super) cost: u64,
}

/// The records of one app.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records<'a> {
    pub(super) sql: &'a Connection,
    /// The number of the app.
    pub(super) app: i64,
}

impl Records<'_> {
    /// The entry of a message, even if it has expired.
    pub(super) fn find(
        &self,
        app: &AppId,
        message: &MessageId,
    ) -> Result<Option<StoredRecord>, StoreError> {
        for table in [RecordTable::Begun, RecordTable::of(message, true)] {
            if let Some(bytes) = self.bytes(table, message)? {
                return StoredRecord::read(app, message, table, &bytes).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns what a record begins with; none if there is none, or none that this program can
    /// read.
    pub(super) fn preamble(
        &self,
        table: RecordTable,
        message: &MessageId,
    ) -> Result<Option<record::Preamble>, StoreError> {
        let Some(bytes) = self.bytes(table, message)? else { return Ok(None) };
        let read = RowBytes::read(message, &bytes);
        Ok(read.and_then(|row| record::preamble(message, row.record)).ok())
    }

    fn bytes(
        &self,
        table: RecordTable,
        message: &MessageId,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let find = match table {
            RecordTable::Begun => "SELECT record FROM begun WHERE app = ?1 AND id = ?2",
            RecordTable::Finished => "SELECT record FROM finished WHERE app = ?1 AND id = ?2",
            RecordTable::FinishedDerived => {
                "SELECT record FROM finished_derived WHERE app = ?1 AND id = ?2"
            }
        };
        let with = params![self.app, message.as_uuid().as_bytes()];
        Ok(self.sql.prepare_cached(find)?.query_row(with, |row| row.get(0)).optional()?)
    }

    /// Adds an entry. False if it does not fit into a record.
    pub(super) fn add(&self, entry: &Entry, kept_until: UnixMillis) -> Result<bool, StoreError> {
        let Some(record) = record::encode(entry) else { return Ok(false) };
        let message = &entry.message_id;
        let bytes = RowBytes::write(message, kept_until, &record);
        let add = match RecordTable::of(message, entry.is_closed()) {
            RecordTable::Begun => "INSERT INTO begun (app, id, record, at) VALUES (?1, ?2, ?3, ?4)",
            RecordTable::Finished => "INSERT INTO finished (app, id, record) VALUES (?1, ?2, ?3)",
            RecordTable::FinishedDerived => {
                "INSERT INTO finished_derived (app, number, id, record, at)
                SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4
                FROM finished_derived WHERE app = ?1"
            }
        };
        let id = message.as_uuid().as_bytes();
        match (RecordTable::of(message, entry.is_closed()), message.time()) {
            (RecordTable::Finished, _) => execute(self.sql, add, params![self.app, id, bytes])?,
            (_, time) => {
                let at = time.is_none().then(|| bits(entry.accepted_at.0));
                execute(self.sql, add, params![self.app, id, bytes, at])?
            }
        };
        Ok(true)
    }

    pub(super) fn remove(&self, table: RecordTable, message: &MessageId) -> Result<(), StoreError> {
        let remove = match table {
            RecordTable::Begun => "DELETE FROM begun WHERE app = ?1 AND id = ?2",
            RecordTable::Finished => "DELETE FROM finished WHERE app = ?1 AND id = ?2",
            RecordTable::FinishedDerived => {
                "DELETE FROM finished_derived WHERE app = ?1 AND id = ?2"
            }
        };
        execute(self.sql, remove, params![self.app, message.as_uuid().as_bytes()])?;
        Ok(())
    }

    /// The first rows of a table, at most `limit`: for closed entries the oldest.
    pub(super) fn oldest(
        &self,
        table: RecordTable,
        limit: usize,
    ) -> Result<Vec<RecordRow>, StoreError> {
        let read = match table {
            RecordTable::Begun => {
                "SELECT id, record, cost FROM begun WHERE app = ?1 ORDER BY id LIMIT ?2"
            }
            RecordTable::Finished => {
                "SELECT id, record, cost FROM finished WHERE app = ?1 ORDER BY id LIMIT ?2"
            }
            RecordTable::FinishedDerived => {
                "SELECT id, record, cost FROM finished_derived
                WHERE app = ?1 ORDER BY number LIMIT ?2"
            }
        };
        let mut statement = self.sql.prepare_cached(read)?;
        let mut rows = statement.query(params![self.app, limit as i64])?;
        let mut oldest = Vec::new();
        while let Some(row) = rows.next()? {
            let message = message_id(row.get(0)?);
            let bytes: Vec<u8> = row.get(1)?;
            let cost = row.get::<_, i64>(2)?.cast_unsigned();
            oldest.push(RecordRow::read(message, &bytes, cost));
        }
        Ok(oldest)
    }
}

impl StoredRecord {
    pub(super) fn read(
        app: &AppId,
        message: &MessageId,
        table: RecordTable,
        bytes: &[u8],
    ) -> Result<Self, StoreError> {
        let bad = |error| unreadable("the record of a message", error);
        let RowBytes { kept_until, record } = RowBytes::read(message, bytes).map_err(bad)?;
        let entry = record::decode(app, message, record).map_err(bad)?;
        Ok(Self { table, kept_until, entry: entry.into() })
    }
}

impl RecordRow {
    /// A row that this program cannot read, for example because a later version wrote it, counts as
    /// old as its id says and is evicted in that order.
    fn read(message: MessageId, bytes: &[u8], cost: u64) -> Self {
        let issued_at = message.time().unwrap_or_default();
        let (accepted_at, kept_until) = match RowBytes::read(&message, bytes) {
            Ok(RowBytes { kept_until, record, .. }) => {
                let preamble = record::preamble(&message, record);
                let accepted_at = preamble.map_or(UnixMillis(0), |preamble| preamble.accepted_at);
                (accepted_at.max(issued_at), kept_until)
            }
            Err(BadRecord) => (issued_at, UnixMillis::MAX),
        };
        Self { message, accepted_at, kept_until, cost }
    }
}

pub(super) fn message_id(bytes: [u8; 16]) -> MessageId {
    MessageId::from_uuid(uuid::Uuid::from_bytes(bytes))
}
