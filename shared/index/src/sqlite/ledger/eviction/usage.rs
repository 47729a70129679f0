//! What the ledger takes, and the result of the last round.

use push_model::{ledger::History, time::UnixMillis};
use push_sqlite::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Eviction, Tally, candidates::Heads};
use crate::sqlite::{
    ledger::{bits, records::RecordTable},
    schema::execute,
};

impl Eviction<'_> {
    /// The sum of all costs.
    pub(super) fn bytes(&self) -> Result<u64, StoreError> {
        let read = "SELECT bytes FROM ledger WHERE space = ?1";
        let bytes: i64 =
            self.sql.prepare_cached(read)?.query_row([self.records.ledger_id], |row| row.get(0))?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// About when the oldest entry was accepted.
    fn oldest(&self, heads: &Heads) -> Result<Option<UnixMillis>, StoreError> {
        let begun = self.records.oldest(RecordTable::Begun, 1)?;
        let open = "SELECT accepted_at FROM message WHERE namespace = ?1 AND closed = 0
            ORDER BY expires_at LIMIT 1";
        let open: Option<i64> = self
            .sql
            .prepare_cached(open)?
            .query_row([self.messages.namespace], |row| row.get(0))
            .optional()?;
        let begun = begun.first().map(|row| row.accepted_at);
        let open = open.map(|at| UnixMillis(at.cast_unsigned()));
        Ok(heads.iter().map(|(_, head)| *head).chain(begun).chain(open).min())
    }

    /// Stores the result of this round.
    pub(super) fn note(
        &self,
        bytes: u64,
        limit: u64,
        heads: &Heads,
        tally: &Tally,
    ) -> Result<(), StoreError> {
        let note = "UPDATE ledger SET measured_at = ?2, measured = ?3, bound = ?4, oldest = ?5,
                forgotten = forgotten + ?6,
                forgotten_until = coalesce(max(forgotten_until, ?7), forgotten_until, ?7)
            WHERE space = ?1";
        let with = params![
            self.records.ledger_id,
            bits(self.now.0),
            bits(bytes),
            bits(limit),
            self.oldest(heads)?.map(|at| bits(at.0)),
            bits(tally.evicted),
            tally.until.map(|at| bits(at.min(self.now).0)),
        ];
        execute(self.sql, note, with)?;
        Ok(())
    }
}

/// The result of the last round.
pub(in crate::sqlite::ledger) fn history(
    sql: &Connection,
    ledger_id: i64,
) -> Result<Option<History>, StoreError> {
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
            evicted: number(4)?,
        })
    };
    Ok(sql.prepare_cached(read)?.query_row([ledger_id], history).optional()?)
}

/// The latest time of acceptance among the evicted entries.
pub(in crate::sqlite::ledger) fn evicted_until(
    sql: &Connection,
    ledger_id: i64,
) -> Result<Option<UnixMillis>, StoreError> {
    let read = "SELECT forgotten_until FROM ledger WHERE space = ?1";
    let until: Option<Option<i64>> =
        sql.prepare_cached(read)?.query_row([ledger_id], |row| row.get(0)).optional()?;
    Ok(until.flatten().map(|at| UnixMillis(at.cast_unsigned())))
}
