//! Keeps the ledger within a bound, about a thousand rows at a time.
//!
//! What it takes is a sum of costs in the ledger's own row, which triggers keep in the transaction of
//! each change; the cost of a row is its length and what was measured to come with it: keys, headers,
//! and the part of pages that stays free. So measuring reads one row, however many entries there are.
//! It leaves out devices and what the file keeps free.
//!
//! A round first deletes entries that are over their time, then the oldest closed ones until the sum
//! is within the bound. It looks for them where each kind begins: records of issued ids by id,
//! those of derived ids in the order in which they were closed, rows of closed messages by the
//! time of acceptance, rows of open messages that nothing works on any more by their expiry. An entry
//! that is kept for a shorter time than those before it, because the retention was changed
//! meanwhile, goes with them. Records of open entries are no queue to take the oldest from, because
//! those that are left behind stand between others; each round looks at the next few of them.
//!
//! Deleted rows leave free pages in the file, which SQLite fills before the file grows again; so a
//! ledger at its bound has a file of about one size, which does not shrink. `auto_vacuum` would make
//! it shrink: at the price of moving pages in each commit, for room that is used again anyway, and
//! an existing file would have to be written anew for it. To give room back after the bound was
//! lowered, `VACUUM` the file while nothing uses it.

use push_model::{
    ids::MessageId,
    ledger::{History, Plan, Round},
    report,
    time::UnixMillis,
};
use push_sqlite::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    bits,
    records::{Recorded, Records, Shelf},
    rich::{Rich, json},
};
use crate::sqlite::schema::execute;

/// About how many rows a round deletes. A transaction keeps all writers waiting; this many take some
/// 10 ms.
const ROWS: u64 = 1000;

/// As how many rows a record of a derived id counts. Its key stands anywhere in an index, so that
/// each takes a page of its own to be read and written: 130 µs of a million, where others take 11.
const DERIVED_ROWS: u64 = 8;

/// How many records are looked at at once. Small enough that what is read in vain costs little.
const CHUNK: usize = 200;

/// The same of messages with rows, each of which may have thousands of partitions.
const MESSAGES: usize = 20;

/// How many records of open entries a round looks at.
const BEGUN: usize = 500;

/// What a round has yet to do, and what it did.
#[derive(Debug, Default)]
struct Tally {
    /// How many rows it may still delete.
    rows: u64,
    /// Entries that were forgotten to keep the bound.
    forgotten: u64,
    /// When the latest of them was accepted.
    until: Option<UnixMillis>,
}

impl Tally {
    fn delete(&mut self, rows: u64) {
        self.rows = self.rows.saturating_sub(rows);
    }

    fn forget(&mut self, rows: u64, accepted_at: UnixMillis) {
        self.delete(rows);
        self.forgotten += 1;
        self.until = self.until.max(Some(accepted_at));
    }
}

/// Where entries that may be forgotten are found, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Records(Shelf),
    /// Messages with rows that are closed.
    Closed,
    /// Messages with rows that are open, and over for so long that nothing works on them.
    LeftOpen,
    /// Messages that were recalled before any worker began them.
    RecalledAhead,
}

/// As how many rows a record counts.
fn weight(shelf: Shelf) -> u64 {
    match shelf {
        Shelf::Begun | Shelf::Finished => 1,
        Shelf::FinishedDerived => DERIVED_ROWS,
    }
}

impl Source {
    const ALL: [Self; 5] = [
        Self::Records(Shelf::Finished),
        Self::Records(Shelf::FinishedDerived),
        Self::Closed,
        Self::LeftOpen,
        Self::RecalledAhead,
    ];

    /// How many entries are looked at at once.
    fn chunk(self) -> usize {
        match self {
            Self::Records(_) => CHUNK,
            Self::Closed | Self::LeftOpen | Self::RecalledAhead => MESSAGES,
        }
    }
}

/// An entry that may be forgotten.
#[derive(Debug)]
struct Candidate {
    place: Place,
    accepted_at: UnixMillis,
    cost: u64,
}

/// Where an entry stands.
#[derive(Debug)]
enum Place {
    Record(Shelf, MessageId),
    Rows(i64),
}

/// When the first entry of each source was accepted.
type Heads = Vec<(Source, UnixMillis)>;

/// One round on the ledger of a namespace.
pub(super) struct Bounds<'a> {
    sql: &'a Connection,
    records: Records<'a>,
    rich: Rich<'a>,
    now: UnixMillis,
}

impl<'a> Bounds<'a> {
    pub(super) fn new(
        sql: &'a Connection,
        namespace: &'a str,
        space: i64,
        now: UnixMillis,
    ) -> Self {
        Self { sql, records: Records { sql, space }, rich: Rich { sql, namespace }, now }
    }

    pub(super) fn keep_within(&self, limit: u64) -> Result<Round, StoreError> {
        let mut tally = Tally { rows: ROWS, ..Tally::default() };
        self.delete_what_is_over(&mut tally)?;
        let mut heads = self.heads()?;
        let mut bytes = self.bytes()?;
        while bytes > limit && tally.rows > 0 && !heads.is_empty() {
            self.forget_oldest(&heads, bytes - limit, &mut tally)?;
            heads = self.heads()?;
            bytes = self.bytes()?;
        }
        self.look_at_begun(limit, heads.is_empty(), &mut tally)?;
        let bytes = self.bytes()?;
        self.note(bytes, limit, &heads, &tally)?;
        let more = tally.rows == 0 || (bytes > limit && tally.forgotten > 0);
        let missing = || StoreError::Unreadable("the file has no ledger".to_owned());
        let history = history(self.sql, self.records.space)?.ok_or_else(missing)?;
        Ok(Round { history, more })
    }

    /// The sum of all costs.
    fn bytes(&self) -> Result<u64, StoreError> {
        let read = "SELECT bytes FROM ledger WHERE space = ?1";
        let bytes: i64 =
            self.sql.prepare_cached(read)?.query_row([self.records.space], |row| row.get(0))?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    fn delete_what_is_over(&self, tally: &mut Tally) -> Result<(), StoreError> {
        for shelf in [Shelf::Finished, Shelf::FinishedDerived] {
            let mut goes_on = true;
            while goes_on && tally.rows > 0 {
                let mut rows = self.records.oldest(shelf, CHUNK)?;
                rows.retain(|row| row.kept_until <= self.now);
                goes_on = !rows.is_empty();
                for row in rows {
                    if tally.rows > 0 {
                        self.records.remove(shelf, &row.message)?;
                        tally.delete(weight(shelf));
                    }
                }
            }
        }
        let mut goes_on = true;
        while goes_on && tally.rows > 0 {
            let over = self.rows_that_are_over()?;
            goes_on = !over.is_empty();
            for row in over {
                if tally.rows > 0 {
                    tally.delete(self.rich.remove(row)?);
                }
            }
        }
        Ok(())
    }

    /// Some entries with rows whose time is over.
    fn rows_that_are_over(&self) -> Result<Vec<i64>, StoreError> {
        // SQLite would look at all rows of the namespace.
        let over = "SELECT row FROM message INDEXED BY message_keep_until
            WHERE keep_until <= ?2 AND namespace = ?1 LIMIT ?3";
        let with = params![self.rich.namespace, bits(self.now.0), MESSAGES as i64];
        let mut statement = self.sql.prepare_cached(over)?;
        let over = statement.query_map(with, |row| row.get(0))?;
        Ok(over.collect::<Result<_, _>>()?)
    }

    fn heads(&self) -> Result<Heads, StoreError> {
        let mut heads = Vec::new();
        for source in Source::ALL {
            let first = self.first(source, 1)?;
            heads.extend(first.into_iter().map(|first| (source, first.accepted_at)));
        }
        Ok(heads)
    }

    /// The entries of a source that come first, at most so many.
    fn first(&self, source: Source, limit: usize) -> Result<Vec<Candidate>, StoreError> {
        // As `may_be_forgotten` says.
        let rested = self.now.0.saturating_sub(report::REST.as_millis() as u64);
        let (which, by) = match source {
            Source::Records(shelf) => {
                let rows = self.records.oldest(shelf, limit)?.into_iter();
                let candidate = |row: super::records::Row| Candidate {
                    place: Place::Record(shelf, row.message),
                    accepted_at: row.accepted_at,
                    cost: row.cost,
                };
                return Ok(rows.map(candidate).collect());
            }
            Source::Closed => {
                let named = json(&Plan::named())?;
                let which = format!("closed = 1 AND (expires_at < ?2 OR plan = '{named}')");
                (which + " ORDER BY accepted_at", self.now.0)
            }
            Source::LeftOpen => {
                ("closed = 0 AND expires_at < ?2 ORDER BY expires_at".to_owned(), rested)
            }
            // In the order in which they were recalled: if the first are too young, so are the others.
            Source::RecalledAhead => {
                let which = "row IN (SELECT row FROM message WHERE namespace = ?1 AND closed = 0
                    AND expires_at IS NULL AND copy IS NULL ORDER BY row LIMIT ?3)
                    AND recalled_at < ?2 ORDER BY row";
                (which.to_owned(), rested)
            }
        };
        let read = format!(
            "SELECT row, id, accepted_at, cost + (
                SELECT coalesce(sum(cost), 0) FROM partition WHERE message = row)
            FROM message WHERE namespace = ?1 AND {which} LIMIT ?3"
        );
        let candidate = |row: &rusqlite::Row<'_>| {
            let message = MessageId::from_uuid(uuid::Uuid::from_bytes(row.get(1)?));
            let accepted_at = UnixMillis(row.get::<_, i64>(2)?.cast_unsigned());
            Ok(Candidate {
                place: Place::Rows(row.get(0)?),
                accepted_at: accepted_at.max(message.time().unwrap_or_default()),
                cost: row.get::<_, i64>(3)?.cast_unsigned(),
            })
        };
        let with = params![self.rich.namespace, bits(by), limit as i64];
        let mut statement = self.sql.prepare_cached(&read)?;
        let candidates = statement.query_map(with, candidate)?;
        Ok(candidates.collect::<Result<_, _>>()?)
    }

    /// Forgets entries of the source with the oldest, up to the oldest of the others.
    fn forget_oldest(
        &self,
        heads: &Heads,
        excess: u64,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        let Some((source, _)) = heads.iter().min_by_key(|(_, head)| *head) else { return Ok(()) };
        let others = heads.iter().filter(|(other, _)| other != source);
        let next = others.map(|(_, head)| *head).min().unwrap_or(UnixMillis(u64::MAX));
        let mut freed = 0;
        for candidate in self.first(*source, source.chunk())? {
            let Candidate { place, accepted_at, cost } = candidate;
            // The first is the oldest of all.
            if freed > 0 && (accepted_at > next || freed >= excess || tally.rows == 0) {
                break;
            }
            let rows = match place {
                Place::Record(shelf, message) => {
                    self.records.remove(shelf, &message)?;
                    weight(shelf)
                }
                Place::Rows(row) => self.rich.remove(row)?,
            };
            tally.forget(rows, accepted_at);
            freed += cost;
        }
        Ok(())
    }

    /// Looks at the next records of open entries: deletes those that are over, and forgets those that
    /// nothing works on any more if the bound asks for that: if they are older than what was
    /// forgotten, or if nothing else is left to forget.
    fn look_at_begun(
        &self,
        limit: u64,
        nothing_else: bool,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        let space = self.records.space;
        let read = "SELECT hand FROM ledger WHERE space = ?1";
        let hand: Option<Vec<u8>> =
            self.sql.prepare_cached(read)?.query_row([space], |row| row.get(0))?;
        let begun = self.records.begun_after(&hand.unwrap_or_default(), BEGUN)?;
        let hand = begun.last().map(|(last, _)| *last).filter(|_| begun.len() == BEGUN);
        let note = "UPDATE ledger SET hand = ?2 WHERE space = ?1";
        execute(self.sql, note, params![space, hand.map(|id| *id.as_uuid().as_bytes())])?;
        for (message, recorded) in begun {
            let Some(Recorded { shelf, kept_until, entry }) = recorded else { continue };
            if kept_until <= self.now {
                self.records.remove(shelf, &message)?;
                tally.delete(1);
            } else if report::is_forgotten(&entry, self.now) {
                let is_older = Some(entry.accepted_at) <= tally.until;
                if is_older || (nothing_else && self.bytes()? > limit) {
                    self.records.remove(shelf, &message)?;
                    let issued_at = message.time().unwrap_or_default();
                    tally.forget(1, entry.accepted_at.max(issued_at));
                }
            }
        }
        Ok(())
    }

    /// About when the oldest entry that is kept was accepted.
    fn oldest(&self, heads: &Heads) -> Result<Option<UnixMillis>, StoreError> {
        let begun = self.records.oldest(Shelf::Begun, 1)?;
        let open = "SELECT accepted_at FROM message WHERE namespace = ?1 AND closed = 0
            ORDER BY expires_at LIMIT 1";
        let open: Option<i64> = self
            .sql
            .prepare_cached(open)?
            .query_row([self.rich.namespace], |row| row.get(0))
            .optional()?;
        let begun = begun.first().map(|row| row.accepted_at);
        let open = open.map(|at| UnixMillis(at.cast_unsigned()));
        Ok(heads.iter().map(|(_, head)| *head).chain(begun).chain(open).min())
    }

    fn note(&self, bytes: u64, limit: u64, heads: &Heads, tally: &Tally) -> Result<(), StoreError> {
        let note = "UPDATE ledger SET measured_at = ?2, measured = ?3, bound = ?4, oldest = ?5,
                forgotten = forgotten + ?6,
                forgotten_until = coalesce(max(forgotten_until, ?7), forgotten_until, ?7)
            WHERE space = ?1";
        let with = params![
            self.records.space,
            bits(self.now.0),
            bits(bytes),
            bits(limit),
            self.oldest(heads)?.map(|at| bits(at.0)),
            bits(tally.forgotten),
            tally.until.map(|at| bits(at.min(self.now).0)),
        ];
        execute(self.sql, note, with)?;
        Ok(())
    }
}

/// What the last round found.
pub(super) fn history(sql: &Connection, space: i64) -> Result<Option<History>, StoreError> {
    let read = "SELECT measured_at, measured, bound, oldest, forgotten FROM ledger
        WHERE space = ?1 AND measured_at IS NOT NULL";
    let history = |row: &rusqlite::Row<'_>| {
        let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        let oldest: Option<i64> = row.get(3)?;
        Ok(History {
            measured_at: UnixMillis(number(0)?),
            bytes: number(1)?,
            limit: number(2)?,
            oldest: oldest.map(|at| UnixMillis(at.cast_unsigned())),
            forgotten: number(4)?,
        })
    };
    Ok(sql.prepare_cached(read)?.query_row([space], history).optional()?)
}

/// Up to when messages were accepted whose entries were forgotten to keep the bound.
pub(super) fn forgotten_until(
    sql: &Connection,
    space: i64,
) -> Result<Option<UnixMillis>, StoreError> {
    let read = "SELECT forgotten_until FROM ledger WHERE space = ?1";
    let until: Option<Option<i64>> =
        sql.prepare_cached(read)?.query_row([space], |row| row.get(0)).optional()?;
    Ok(until.flatten().map(|at| UnixMillis(at.cast_unsigned())))
}
