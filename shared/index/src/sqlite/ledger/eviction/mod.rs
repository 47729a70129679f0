//! Eviction: keeps the ledger within its limit, about a thousand rows in a round.
//!
//! The size is the sum of costs in the ledger's own row, which triggers update in the transaction
//! of each change. The cost of a row is its length plus a measured overhead: keys, headers, and its
//! share of free space in pages. So measuring reads one row, however many entries there are. The
//! size leaves out devices and the free pages of the file.
//!
//! A round first deletes expired entries, then the oldest closed ones until the sum is within the
//! limit. It finds them at the beginning of each kind: records with issued ids by id, those with
//! derived ids in the order in which they were closed, rows of closed messages by the time of
//! acceptance, rows of overdue open messages by their expiry. An entry whose retention is shorter
//! than that of the entries before it, because the setting was changed, is deleted only together
//! with them. Records of open entries are not in the order of their age, because overdue ones stand
//! between others; each round reads the next few of them, from a cursor.
//!
//! Deleted rows leave free pages in the file, which SQLite uses before the file grows again. So a
//! ledger at its limit has a file of about constant size, which does not shrink. `auto_vacuum`
//! would shrink it, but it moves pages in each commit to free space that is used again anyway, and
//! an existing file would have to be rewritten for it. To free the space after the limit was
//! lowered, `VACUUM` the file while no process uses it.
//!
//! - `mod`: the round
//! - `candidates`: entries that may be evicted, the oldest first
//! - `marks`: what is remembered of evicted entries
//! - `usage`: what the ledger takes, and the result of the last round

mod candidates;
mod marks;
mod usage;

use push_model::{ledger::EvictionRound, report, time::UnixMillis};
use push_sqlite::StoreError;
use rusqlite::{Connection, params};

use self::candidates::{Candidate, EntryKey, Heads};
pub(super) use self::{
    marks::has_mark,
    usage::{evicted_until, history},
};
use super::{
    bits,
    message_rows::MessageRows,
    records::{RecordTable, Records, StoredRecord},
};
use crate::sqlite::schema::execute;

/// About how many rows a round deletes. All writers wait for the transaction; this many rows take
/// some 10 ms.
const ROWS: u64 = 1000;

/// How many rows a record with a derived id counts as. Its key is anywhere in an index, so each one
/// reads and writes a page of its own: 130 µs among a million, where others take 11.
const DERIVED_ROWS: u64 = 8;

/// How many expired or old records are read at once: few enough that reading too many costs little.
const LOOKED_AT: usize = 200;

/// The same for messages with rows of their own, each of which may have thousands of partitions.
const MESSAGES: usize = 20;

/// How many records of open entries a round reads.
const BEGUN: usize = 500;

/// The progress of a round.
#[derive(Debug, Default)]
struct Tally {
    /// How many rows the round may still delete.
    rows: u64,
    /// How many entries it evicted.
    evicted: u64,
    /// The latest time of acceptance among them.
    until: Option<UnixMillis>,
}

impl Tally {
    fn delete(&mut self, rows: u64) {
        self.rows = self.rows.saturating_sub(rows);
    }

    fn evict(&mut self, rows: u64, accepted_at: UnixMillis) {
        self.delete(rows);
        self.evicted += 1;
        self.until = self.until.max(Some(accepted_at));
    }
}

/// How many rows a record counts as.
fn weight(table: RecordTable) -> u64 {
    match table {
        RecordTable::Begun | RecordTable::Finished => 1,
        RecordTable::FinishedDerived => DERIVED_ROWS,
    }
}

/// One round on the ledger of a namespace.
pub(super) struct Eviction<'a> {
    sql: &'a Connection,
    records: Records<'a>,
    messages: MessageRows<'a>,
    now: UnixMillis,
}

impl<'a> Eviction<'a> {
    pub(super) fn new(
        sql: &'a Connection,
        namespace: &'a str,
        ledger_id: i64,
        now: UnixMillis,
    ) -> Self {
        Self {
            sql,
            records: Records { sql, ledger_id },
            messages: MessageRows { sql, namespace },
            now,
        }
    }

    /// One round of keeping the ledger within `limit` bytes.
    pub(super) fn keep_within(&self, limit: u64) -> Result<EvictionRound, StoreError> {
        let mut tally = Tally { rows: ROWS, ..Tally::default() };
        self.delete_expired(&mut tally)?;
        let mut heads = self.heads()?;
        let mut bytes = self.bytes()?;
        while bytes > limit && tally.rows > 0 && !heads.is_empty() {
            self.evict_oldest(&heads, bytes - limit, &mut tally)?;
            heads = self.heads()?;
            bytes = self.bytes()?;
        }
        self.check_begun(limit, heads.is_empty(), &mut tally)?;
        let bytes = self.bytes()?;
        self.note(bytes, limit, &heads, &tally)?;
        let more = tally.rows == 0 || (bytes > limit && tally.evicted > 0);
        let missing = || StoreError::Unreadable("the file has no ledger".to_owned());
        let history = history(self.sql, self.records.ledger_id)?.ok_or_else(missing)?;
        Ok(EvictionRound { history, more })
    }

    fn delete_expired(&self, tally: &mut Tally) -> Result<(), StoreError> {
        for table in [RecordTable::Finished, RecordTable::FinishedDerived] {
            let mut goes_on = true;
            while goes_on && tally.rows > 0 {
                let mut rows = self.records.oldest(table, LOOKED_AT)?;
                rows.retain(|row| row.kept_until <= self.now);
                goes_on = !rows.is_empty();
                for row in rows {
                    if tally.rows > 0 {
                        self.records.remove(table, &row.message)?;
                        tally.delete(weight(table));
                    }
                }
            }
        }
        let mut goes_on = true;
        while goes_on && tally.rows > 0 {
            let expired = self.expired_messages()?;
            goes_on = !expired.is_empty();
            for row in expired {
                if tally.rows > 0 {
                    tally.delete(self.messages.remove(row)?);
                }
            }
        }
        Ok(())
    }

    /// Some rows of messages whose entries have expired.
    fn expired_messages(&self) -> Result<Vec<i64>, StoreError> {
        // Without the index hint, SQLite would read all rows of the namespace.
        let find = "SELECT row FROM message INDEXED BY message_keep_until
            WHERE keep_until <= ?2 AND namespace = ?1 LIMIT ?3";
        let with = params![self.messages.namespace, bits(self.now.0), MESSAGES as i64];
        let mut statement = self.sql.prepare_cached(find)?;
        let expired = statement.query_map(with, |row| row.get(0))?;
        Ok(expired.collect::<Result<_, _>>()?)
    }

    /// Evicts entries of the source that has the oldest entry, up to the oldest entry of the other
    /// sources.
    fn evict_oldest(
        &self,
        heads: &Heads,
        excess: u64,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        let Some((source, _)) = heads.iter().min_by_key(|(_, head)| *head) else { return Ok(()) };
        let others = heads.iter().filter(|(other, _)| other != source);
        let next = others.map(|(_, head)| *head).min().unwrap_or(UnixMillis(u64::MAX));
        let mut freed = 0;
        for candidate in self.first(*source, source.most())? {
            let Candidate { key, accepted_at, cost } = candidate;
            // The first candidate is the oldest of all, so it is evicted in any case.
            if freed > 0 && (accepted_at > next || freed >= excess || tally.rows == 0) {
                break;
            }
            self.add_mark(&key)?;
            let rows = match key {
                EntryKey::Record(table, message) => {
                    self.records.remove(table, &message)?;
                    weight(table)
                }
                EntryKey::Rows(row) => self.messages.remove(row)?,
            };
            tally.evict(rows, accepted_at);
            freed += cost;
        }
        Ok(())
    }

    /// Reads the next records of open entries. Deletes expired ones, and evicts overdue ones if
    /// they are older than entries that were evicted, or if the ledger is above its limit and there
    /// is nothing else to evict.
    fn check_begun(
        &self,
        limit: u64,
        nothing_else: bool,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        let ledger_id = self.records.ledger_id;
        let read = "SELECT hand FROM ledger WHERE space = ?1";
        let cursor: Option<Vec<u8>> =
            self.sql.prepare_cached(read)?.query_row([ledger_id], |row| row.get(0))?;
        let begun = self.records.begun_after(&cursor.unwrap_or_default(), BEGUN)?;
        let cursor = begun.last().map(|(last, _)| *last).filter(|_| begun.len() == BEGUN);
        let note = "UPDATE ledger SET hand = ?2 WHERE space = ?1";
        execute(self.sql, note, params![ledger_id, cursor.map(|id| *id.as_uuid().as_bytes())])?;
        for (message, recorded) in begun {
            let Some(StoredRecord { table, kept_until, entry }) = recorded else { continue };
            if kept_until <= self.now {
                self.records.remove(table, &message)?;
                tally.delete(1);
            } else if report::is_overdue(&entry, self.now) {
                let is_older = Some(entry.accepted_at) <= tally.until;
                if is_older || (nothing_else && self.bytes()? > limit) {
                    self.records.remove(table, &message)?;
                    let issued_at = message.time().unwrap_or_default();
                    tally.evict(1, entry.accepted_at.max(issued_at));
                }
            }
        }
        Ok(())
    }
}
