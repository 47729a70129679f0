//! Remembering evicted entries for a while.
//!
//! A closed entry may be evicted while the queue message that closed it is not yet acknowledged. If
//! that is delivered again, the missing entry looks as if nothing had been sent. So the transaction
//! that evicts an entry adds its mark, and one that would begin an entry looks for it.

use push_model::{
    ids::MessageId,
    ledger::{eviction_mark, is_eviction_remembered},
    time::UnixMillis,
};
use push_sqlite::StoreError;
use push_store::sqlite::execute;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Eviction, candidates::EntryKey};
use crate::{ledger::EVICTION_KEPT, sqlite::bits};

/// The most marks of a file.
const MOST: i64 = 65_536;

impl Eviction<'_> {
    /// Adds the mark of a closed entry, if its message may still be sent.
    pub(super) fn add_mark(&self, app: i64, key: &EntryKey) -> Result<(), StoreError> {
        let closed = match key {
            EntryKey::Record(table, message) => {
                let preamble = self.records(app).preamble(*table, message)?;
                preamble
                    .filter(|preamble| preamble.state.is_ended())
                    .map(|preamble| (*message, preamble.dedup_nonce, Some(preamble.expires_at)))
            }
            EntryKey::Rows(row) => self.messages(app).closed(*row)?,
        };
        let Some((message, dedup_nonce, expires_at)) = closed else { return Ok(()) };
        if !expires_at.is_some_and(|at| is_eviction_remembered(at, self.now)) {
            return Ok(());
        }
        let add = "INSERT INTO evicted (space, mark, at) VALUES (?1, ?2, ?3)";
        let mark = bits(eviction_mark(&message, dedup_nonce));
        execute(self.sql, add, params![self.ledger_id, mark, bits(self.now.0)])?;
        let trim = "DELETE FROM evicted WHERE row <= ?1 OR (row IN (
            SELECT row FROM evicted ORDER BY row LIMIT 2) AND at < ?2)";
        let old = self.now.0.saturating_sub(EVICTION_KEPT.as_millis() as u64);
        execute(self.sql, trim, params![self.sql.last_insert_rowid() - MOST, bits(old)])?;
        Ok(())
    }
}

/// Returns true if this ledger has the mark of the job.
pub(in crate::sqlite) fn has_mark(
    sql: &Connection,
    ledger_id: i64,
    message: &MessageId,
    dedup_nonce: u64,
    now: UnixMillis,
) -> Result<bool, StoreError> {
    let find = "SELECT 1 FROM evicted WHERE space = ?1 AND mark = ?2 AND at >= ?3 LIMIT 1";
    let old = now.0.saturating_sub(EVICTION_KEPT.as_millis() as u64);
    let with = params![ledger_id, bits(eviction_mark(message, dedup_nonce)), bits(old)];
    Ok(sql.prepare_cached(find)?.query_row(with, |_| Ok(())).optional()?.is_some())
}
