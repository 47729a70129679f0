//! Eviction: keeps the ledger within its limit, about a thousand rows in a round.
//!
//! The size of an app is the sum of costs in its row of `ledger_app`, which triggers update in the
//! transaction of each change; the size is the sum of these. The cost of a row is its length plus a
//! measured overhead: keys, headers, and its share of free space in pages. So measuring reads one
//! row an app, however many entries there are. The size leaves out devices and the free pages of
//! the file.
//!
//! A round first deletes expired entries, then the oldest closed ones of the apps that hold more than
//! their share ([`over_share`]), until the sum is within the limit. It finds them at the beginning of
//! each kind: records with issued ids by id, those with derived ids in the order in which they were
//! closed, rows of closed messages by the time of acceptance, rows of overdue open messages by their
//! expiry. An entry whose retention is shorter than that of the entries before it, because the setting
//! was changed, is deleted only together with them. Records of open entries are not in the order of
//! their age, because overdue ones stand between others; each round reads the next few of them, from a
//! cursor.
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

use std::collections::{BTreeMap, BTreeSet};

use push_model::{
    ids::MessageId,
    ledger::{EvictionRound, over_share},
    report,
    time::UnixMillis,
};
use push_sqlite::StoreError;
use push_store::sqlite::execute;
use rusqlite::{Connection, params};

use self::candidates::{Candidate, EntryKey, Heads};
pub(super) use self::{
    marks::has_mark,
    usage::{evicted_until, history},
};
use super::{
    apps, bits,
    message_rows::MessageRows,
    records::{RecordTable, Records, StoredRecord, message_id},
};

/// About how many rows a round deletes. All writers wait for the transaction; this many rows take
/// some 10 ms.
const ROWS: u64 = 1000;

/// Rows that a record with a derived id counts as. Its key is anywhere in an index, so each one
/// reads and writes a page of its own: 130 µs among a million, where others take 11.
const DERIVED_ROWS: u64 = 8;

/// Expired or old records to read together: few enough that reading too many costs little.
const LOOKED_AT: usize = 200;

/// The same for messages with rows of their own, each of which may have thousands of partitions.
const MESSAGES: usize = 20;

/// Records of open entries that a round reads.
const BEGUN: usize = 500;

/// The progress of a round.
#[derive(Debug, Default)]
struct Tally {
    /// Rows that the round may still delete.
    rows: u64,
    /// Entries that it evicted.
    evicted: u64,
    /// The latest time of acceptance among them, of each app.
    until: BTreeMap<i64, UnixMillis>,
}

impl Tally {
    fn delete(&mut self, rows: u64) {
        self.rows = self.rows.saturating_sub(rows);
    }

    fn evict(&mut self, app: i64, rows: u64, accepted_at: UnixMillis) {
        self.delete(rows);
        self.evicted += 1;
        let until = self.until.entry(app).or_default();
        *until = accepted_at.max(*until);
    }
}

/// Returns how many rows a record counts as.
fn weight(table: RecordTable) -> u64 {
    match table {
        RecordTable::Begun | RecordTable::Finished => 1,
        RecordTable::FinishedDerived => DERIVED_ROWS,
    }
}

/// One round on a ledger.
pub(super) struct Eviction<'a> {
    pub(super) sql: &'a Connection,
    pub(super) ledger_id: i64,
    pub(super) now: UnixMillis,
}

impl Eviction<'_> {
    fn records(&self, app: i64) -> Records<'_> {
        Records { sql: self.sql, app }
    }

    fn messages(&self, app: i64) -> MessageRows<'_> {
        MessageRows { sql: self.sql, app }
    }

    /// One round of keeping the ledger within `limit` bytes.
    pub(super) fn keep_within(&self, limit: u64) -> Result<EvictionRound, StoreError> {
        let mut tally = Tally { rows: ROWS, ..Tally::default() };
        self.delete_expired(&mut tally)?;
        // Apps above their share of which nothing may be evicted.
        let mut stuck = BTreeSet::new();
        while tally.rows > 0 {
            let excess = over_share(&self.held()?, limit);
            let loud = excess.into_iter().filter(|(app, _)| !stuck.contains(app));
            let Some((app, excess)) = loud.max_by_key(|(_, excess)| *excess) else { break };
            let heads = self.heads(app)?;
            if heads.is_empty() {
                stuck.insert(app);
            } else {
                self.evict_oldest(app, &heads, excess, &mut tally)?;
            }
        }
        self.check_begun(limit, &stuck, &mut tally)?;
        let bytes = self.held()?.values().sum();
        self.note(bytes, limit, &tally)?;
        let more = tally.rows == 0 || (bytes > limit && tally.evicted > 0);
        let missing = || StoreError::Unreadable("the file has no ledger".to_owned());
        let history = history(self.sql, self.ledger_id)?.ok_or_else(missing)?;
        Ok(EvictionRound { history, more })
    }

    fn delete_expired(&self, tally: &mut Tally) -> Result<(), StoreError> {
        for app in self.some_apps()? {
            for table in [RecordTable::Finished, RecordTable::FinishedDerived] {
                let mut goes_on = true;
                while goes_on && tally.rows > 0 {
                    // One first: of most apps none has expired.
                    let mut rows = self.records(app).oldest(table, 1)?;
                    if rows.first().is_some_and(|row| row.kept_until <= self.now) {
                        rows = self.records(app).oldest(table, LOOKED_AT)?;
                    }
                    rows.retain(|row| row.kept_until <= self.now);
                    goes_on = !rows.is_empty();
                    for row in rows {
                        if tally.rows > 0 {
                            self.records(app).remove(table, &row.message)?;
                            tally.delete(weight(table));
                        }
                    }
                }
            }
        }
        let mut goes_on = true;
        while goes_on && tally.rows > 0 {
            let expired = self.expired_messages()?;
            goes_on = !expired.is_empty();
            for (app, row) in expired {
                if tally.rows > 0 {
                    tally.delete(self.messages(app).remove(row)?);
                }
            }
        }
        Ok(())
    }

    /// Some rows of messages whose entries have expired, each with its app.
    fn expired_messages(&self) -> Result<Vec<(i64, i64)>, StoreError> {
        // Without the index hint, SQLite would read all rows of the ledger's apps.
        let find = "SELECT app, row FROM message INDEXED BY message_keep_until
            WHERE keep_until <= ?2 AND app IN (SELECT number FROM ledger_app WHERE space = ?1)
            LIMIT ?3";
        let with = params![self.ledger_id, bits(self.now.0), MESSAGES as i64];
        let mut statement = self.sql.prepare_cached(find)?;
        let expired = statement.query_map(with, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(expired.collect::<Result<_, _>>()?)
    }

    /// Evicts entries of the app's source that has the oldest entry, up to the oldest entry of its
    /// other sources.
    fn evict_oldest(
        &self,
        app: i64,
        heads: &Heads,
        excess: u64,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        let Some((source, _)) = heads.iter().min_by_key(|(_, head)| *head) else { return Ok(()) };
        let others = heads.iter().filter(|(other, _)| other != source);
        let next = others.map(|(_, head)| *head).min().unwrap_or(UnixMillis(u64::MAX));
        let mut freed = 0;
        for candidate in self.first(app, *source, source.most())? {
            let Candidate { key, accepted_at, cost } = candidate;
            // The first candidate is the oldest of all, so it is evicted in any case.
            if freed > 0 && (accepted_at > next || freed >= excess || tally.rows == 0) {
                break;
            }
            self.add_mark(app, &key)?;
            let rows = match key {
                EntryKey::Record(table, message) => {
                    self.records(app).remove(table, &message)?;
                    weight(table)
                }
                EntryKey::Rows(row) => self.messages(app).remove(row)?,
            };
            tally.evict(app, rows, accepted_at);
            freed += cost;
        }
        Ok(())
    }

    /// Reads the next records of open entries. Deletes expired ones, and evicts overdue ones if they are
    /// older than entries of their app that were evicted, or if the app is above its share and there is
    /// nothing else of it to evict.
    fn check_begun(
        &self,
        limit: u64,
        stuck: &BTreeSet<i64>,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        let begun = self.next_begun()?;
        for (app, message, recorded) in begun {
            let Some(StoredRecord { table, kept_until, entry }) = recorded else { continue };
            if kept_until <= self.now {
                self.records(app).remove(table, &message)?;
                tally.delete(1);
            } else if report::is_overdue(&entry, self.now) {
                let is_older =
                    tally.until.get(&app).is_some_and(|until| entry.accepted_at <= *until);
                let is_loud = || {
                    let held = self.held()?;
                    Ok::<_, StoreError>(over_share(&held, limit).contains_key(&app))
                };
                if is_older || (stuck.contains(&app) && is_loud()?) {
                    self.records(app).remove(table, &message)?;
                    let issued_at = message.time().unwrap_or_default();
                    tally.evict(app, 1, entry.accepted_at.max(issued_at));
                }
            }
        }
        Ok(())
    }

    /// Reads the records of open entries that follow the cursor, and moves the cursor. An entry is none
    /// if it cannot be read, for example because a later version wrote it.
    fn next_begun(&self) -> Result<Vec<(i64, MessageId, Option<StoredRecord>)>, StoreError> {
        let read = "SELECT hand FROM ledger WHERE space = ?1";
        let cursor: Option<Vec<u8>> =
            self.sql.prepare_cached(read)?.query_row([self.ledger_id], |row| row.get(0))?;
        let cursor = cursor.unwrap_or_default();
        let (after, id) = match cursor.split_first_chunk() {
            Some((app, id)) => (i64::from_be_bytes(*app), id),
            None => (apps::NONE, &[][..]),
        };
        let read = "SELECT begun.app, id, record, space, name
            FROM begun CROSS JOIN ledger_app ON number = begun.app
            WHERE (begun.app, id) > (?1, ?2) ORDER BY begun.app, id LIMIT ?3";
        let mut statement = self.sql.prepare_cached(read)?;
        let mut rows = statement.query(params![after, id, BEGUN as i64])?;
        let (mut begun, mut count, mut last) = (Vec::new(), 0, None);
        while let Some(row) = rows.next()? {
            let (app, message) = (row.get::<_, i64>(0)?, message_id(row.get(1)?));
            (count, last) = (count + 1, Some((app, message)));
            if row.get::<_, i64>(3)? != self.ledger_id {
                continue;
            }
            let bytes: Vec<u8> = row.get(2)?;
            let recorded = match row.get::<_, String>(4)?.parse() {
                Ok(name) => match StoredRecord::read(&name, &message, RecordTable::Begun, &bytes) {
                    Ok(recorded) => Some(recorded),
                    Err(StoreError::Unreadable(_)) => None,
                    Err(error) => return Err(error),
                },
                Err(_) => None,
            };
            begun.push((app, message, recorded));
        }
        let cursor = last.filter(|_| count == BEGUN).map(|(app, message)| {
            [app.to_be_bytes().as_slice(), message.as_uuid().as_bytes()].concat()
        });
        let note = "UPDATE ledger SET hand = ?2 WHERE space = ?1";
        execute(self.sql, note, params![self.ledger_id, cursor])?;
        Ok(begun)
    }
}
