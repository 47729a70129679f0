//! Entries as records: one short row each, without an index beside it.
//!
//! Where a record stands tells whether its entry is open, so that the oldest closed entries are
//! found without passing over open ones, and so that those that are kept for long are written once
//! and packed:
//! - `begun`: open entries. There are as many as are being worked on.
//! - `finished`: closed entries of ids that were issued. The key is the id, which begins with its
//!   time: they are appended, and the oldest come first.
//! - `finished_derived`: closed entries of ids that were derived from an `Idempotency-Key`. Such
//!   an id tells no time, so these are in the order in which they were closed, with an index to find
//!   them. They take twice the room.
//!
//! A row holds the number of the app, until when the entry is kept in hours against the time in the
//! id, rounded up, and the record ([`record`]); the first two are numbers as a record has them.

use push_model::{
    ids::{AppId, MessageId},
    ledger::{
        Entry,
        record::{self, BadRecord},
    },
    time::UnixMillis,
};
use push_sqlite::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use super::unreadable;
use crate::sqlite::schema::execute;

const HOUR: u64 = 3_600_000;

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shelf {
    Begun,
    Finished,
    FinishedDerived,
}

impl Shelf {
    fn of(message: &MessageId, is_closed: bool) -> Self {
        match (is_closed, message.time()) {
            (false, _) => Self::Begun,
            (true, Some(_)) => Self::Finished,
            (true, None) => Self::FinishedDerived,
        }
    }
}

/// The bytes of a row, taken apart.
struct Parts<'a> {
    app: u64,
    kept_until: UnixMillis,
    record: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(message: &MessageId, bytes: &'a [u8]) -> Result<Self, BadRecord> {
        let (app, rest) = record::number(bytes)?;
        let (hours, record) = record::number(rest)?;
        let base = message.time().unwrap_or_default().0;
        let kept_until = UnixMillis(base.saturating_add(hours.saturating_mul(HOUR)));
        Ok(Self { app, kept_until, record })
    }

    fn write(message: &MessageId, app: u64, kept_until: UnixMillis, record: &[u8]) -> Vec<u8> {
        let base = message.time().unwrap_or_default().0;
        let mut bytes = Vec::with_capacity(record.len() + 4);
        record::put(&mut bytes, app);
        record::put(&mut bytes, kept_until.0.saturating_sub(base).div_ceil(HOUR));
        bytes.extend_from_slice(record);
        bytes
    }
}

/// An entry that is kept as a record.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) shelf: Shelf,
    pub(super) kept_until: UnixMillis,
    pub(super) entry: Box<Entry>,
}

/// A row, as far as it is read to decide whether it may go.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) message: MessageId,
    pub(super) accepted_at: UnixMillis,
    pub(super) kept_until: UnixMillis,
    pub(super) cost: u64,
}

/// The records of one ledger.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records<'a> {
    pub(super) sql: &'a Connection,
    pub(super) space: i64,
}

impl Records<'_> {
    /// The entry of a message, also if its time is over.
    pub(super) fn find(&self, message: &MessageId) -> Result<Option<Recorded>, StoreError> {
        for shelf in [Shelf::Begun, Shelf::of(message, true)] {
            let find = match shelf {
                Shelf::Begun => "SELECT record FROM begun WHERE space = ?1 AND id = ?2",
                Shelf::Finished => "SELECT record FROM finished WHERE space = ?1 AND id = ?2",
                Shelf::FinishedDerived => {
                    "SELECT record FROM finished_derived WHERE space = ?1 AND id = ?2"
                }
            };
            let mut statement = self.sql.prepare_cached(find)?;
            let with = params![self.space, message.as_uuid().as_bytes()];
            let found: Option<Vec<u8>> = statement.query_row(with, |row| row.get(0)).optional()?;
            if let Some(bytes) = found {
                return self.read(message, shelf, &bytes).map(Some);
            }
        }
        Ok(None)
    }

    fn read(
        &self,
        message: &MessageId,
        shelf: Shelf,
        bytes: &[u8],
    ) -> Result<Recorded, StoreError> {
        let bad = |error| unreadable("the record of a message", error);
        let Parts { app, kept_until, record } = Parts::read(message, bytes).map_err(bad)?;
        let app = self.app(app)?;
        let entry = record::decode(&app, message, record).map_err(bad)?;
        Ok(Recorded { shelf, kept_until, entry: entry.into() })
    }

    /// Adds an entry. False if it does not fit into a record.
    pub(super) fn add(&self, entry: &Entry, kept_until: UnixMillis) -> Result<bool, StoreError> {
        let Some(record) = record::encode(entry) else { return Ok(false) };
        let Entry { message_id: message, app_id, .. } = entry;
        let app = self.app_number(app_id)?;
        let bytes = Parts::write(message, app, kept_until, &record);
        let add = match Shelf::of(message, entry.is_closed()) {
            Shelf::Begun => "INSERT INTO begun (space, id, record) VALUES (?1, ?2, ?3)",
            Shelf::Finished => "INSERT INTO finished (space, id, record) VALUES (?1, ?2, ?3)",
            Shelf::FinishedDerived => {
                "INSERT INTO finished_derived (space, number, id, record)
                SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3
                FROM finished_derived WHERE space = ?1"
            }
        };
        execute(self.sql, add, params![self.space, message.as_uuid().as_bytes(), bytes])?;
        Ok(true)
    }

    pub(super) fn remove(&self, shelf: Shelf, message: &MessageId) -> Result<(), StoreError> {
        let remove = match shelf {
            Shelf::Begun => "DELETE FROM begun WHERE space = ?1 AND id = ?2",
            Shelf::Finished => "DELETE FROM finished WHERE space = ?1 AND id = ?2",
            Shelf::FinishedDerived => "DELETE FROM finished_derived WHERE space = ?1 AND id = ?2",
        };
        execute(self.sql, remove, params![self.space, message.as_uuid().as_bytes()])?;
        Ok(())
    }

    /// The closed entries that come first, which are the oldest, at most so many.
    pub(super) fn oldest(&self, shelf: Shelf, limit: usize) -> Result<Vec<Row>, StoreError> {
        let read = match shelf {
            Shelf::Begun => {
                "SELECT id, record, cost FROM begun WHERE space = ?1 ORDER BY id LIMIT ?2"
            }
            Shelf::Finished => {
                "SELECT id, record, cost FROM finished WHERE space = ?1 ORDER BY id LIMIT ?2"
            }
            Shelf::FinishedDerived => {
                "SELECT id, record, cost FROM finished_derived
                WHERE space = ?1 ORDER BY number LIMIT ?2"
            }
        };
        let mut statement = self.sql.prepare_cached(read)?;
        let mut rows = statement.query(params![self.space, limit as i64])?;
        let mut oldest = Vec::new();
        while let Some(row) = rows.next()? {
            let message = message_id(row.get(0)?);
            let bytes: Vec<u8> = row.get(1)?;
            let cost = row.get::<_, i64>(2)?.cast_unsigned();
            oldest.push(Row::read(message, &bytes, cost));
        }
        Ok(oldest)
    }

    /// The begun entries that come after this id, at most so many. One that cannot be read, as one of a
    /// later version may be, is none.
    pub(super) fn begun_after(
        &self,
        hand: &[u8],
        limit: usize,
    ) -> Result<Vec<(MessageId, Option<Recorded>)>, StoreError> {
        let read = "SELECT id, record FROM begun WHERE space = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
        let mut statement = self.sql.prepare_cached(read)?;
        let mut rows = statement.query(params![self.space, hand, limit as i64])?;
        let mut begun = Vec::new();
        while let Some(row) = rows.next()? {
            let message = message_id(row.get(0)?);
            let bytes: Vec<u8> = row.get(1)?;
            let recorded = match self.read(&message, Shelf::Begun, &bytes) {
                Ok(recorded) => Some(recorded),
                Err(StoreError::Unreadable(_)) => None,
                Err(error) => return Err(error),
            };
            begun.push((message, recorded));
        }
        Ok(begun)
    }

    fn app(&self, number: u64) -> Result<AppId, StoreError> {
        let find = "SELECT name FROM ledger_app WHERE number = ?1";
        let name: Option<String> = self
            .sql
            .prepare_cached(find)?
            .query_row([number.cast_signed()], |row| row.get(0))
            .optional()?;
        let missing = || unreadable("the app of a message", "it has no name");
        name.ok_or_else(missing)?.parse().map_err(|error| unreadable("the app of a message", error))
    }

    /// The number of an app, which is given out if need be, and never taken back.
    fn app_number(&self, app: &AppId) -> Result<u64, StoreError> {
        let find = "SELECT number FROM ledger_app WHERE name = ?1";
        let known: Option<i64> = self
            .sql
            .prepare_cached(find)?
            .query_row([app.as_str()], |row| row.get(0))
            .optional()?;
        let number = match known {
            Some(number) => number,
            None => {
                execute(self.sql, "INSERT INTO ledger_app (name) VALUES (?1)", [app.as_str()])?;
                self.sql.last_insert_rowid()
            }
        };
        Ok(number.cast_unsigned())
    }
}

impl Row {
    /// A row that this program cannot read, as one of a later version may be, is as old as its id
    /// says and goes in its turn.
    fn read(message: MessageId, bytes: &[u8], cost: u64) -> Self {
        let issued_at = message.time().unwrap_or_default();
        let (accepted_at, kept_until) = match Parts::read(&message, bytes) {
            Ok(Parts { kept_until, record, .. }) => {
                let front = record::front(&message, record);
                let accepted_at = front.map_or(UnixMillis(0), |front| front.accepted_at);
                (accepted_at.max(issued_at), kept_until)
            }
            Err(BadRecord) => (issued_at, UnixMillis::MAX),
        };
        Self { message, accepted_at, kept_until, cost }
    }
}

fn message_id(bytes: [u8; 16]) -> MessageId {
    MessageId::from_uuid(uuid::Uuid::from_bytes(bytes))
}
