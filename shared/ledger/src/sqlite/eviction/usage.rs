//! The size of the ledger, and the result of the last round.

use std::collections::BTreeMap;

use push_model::{app::AppKey, ledger::History, time::UnixMillis};
use push_sqlite::StoreError;
use push_store::sqlite::execute;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Eviction, Tally};
use crate::sqlite::{apps, bits, records::RecordTable};

/// The most apps of which a round deletes expired entries, drawn at random if there are more.
const APPS: i64 = 500;

impl Eviction<'_> {
    /// Returns what each app holds, by its number.
    pub(super) fn held(&self) -> Result<BTreeMap<i64, u64>, StoreError> {
        let read = "SELECT number, bytes FROM ledger_app WHERE space = ?1 AND bytes > 0";
        let mut statement = self.sql.prepare_cached(read)?;
        let held = statement.query_map([self.ledger_id], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
        })?;
        Ok(held.collect::<Result<_, _>>()?)
    }

    /// The numbers of the apps with entries, or of some of them.
    pub(super) fn some_apps(&self) -> Result<Vec<i64>, StoreError> {
        let read = "SELECT number FROM ledger_app WHERE space = ?1 AND bytes > 0
            ORDER BY random() LIMIT ?2";
        let mut statement = self.sql.prepare_cached(read)?;
        let apps = statement.query_map([self.ledger_id, APPS], |row| row.get(0))?;
        Ok(apps.collect::<Result<_, _>>()?)
    }

    /// About when the oldest entry of an app was accepted.
    fn oldest(&self, app: i64) -> Result<Option<UnixMillis>, StoreError> {
        let begun = self.records(app).oldest(RecordTable::Begun, 1)?;
        let open = "SELECT accepted_at FROM message WHERE app = ?1 AND closed = 0
            ORDER BY expires_at LIMIT 1";
        let open: Option<i64> =
            self.sql.prepare_cached(open)?.query_row([app], |row| row.get(0)).optional()?;
        let begun = begun.first().map(|row| row.accepted_at);
        let open = open.map(|at| UnixMillis(at.cast_unsigned()));
        let heads = self.heads(app)?;
        Ok(heads.iter().map(|(_, head)| *head).chain(begun).chain(open).min())
    }

    /// Stores the result of this round.
    pub(super) fn note(&self, bytes: u64, limit: u64, tally: &Tally) -> Result<(), StoreError> {
        let mut oldest = None;
        for app in self.some_apps()? {
            oldest = oldest.into_iter().chain(self.oldest(app)?).min();
        }
        let note = "UPDATE ledger SET measured_at = ?2, measured = ?3, bound = ?4, oldest = ?5,
                forgotten = forgotten + ?6
            WHERE space = ?1";
        let with = params![
            self.ledger_id,
            bits(self.now.0),
            bits(bytes),
            bits(limit),
            oldest.map(|at: UnixMillis| bits(at.0)),
            bits(tally.evicted),
        ];
        execute(self.sql, note, with)?;
        for (app, until) in &tally.until {
            let note = "UPDATE ledger_app
                SET forgotten_until = max(coalesce(forgotten_until, 0), ?2) WHERE number = ?1";
            execute(self.sql, note, params![app, bits(until.min(&self.now).0)])?;
        }
        Ok(())
    }
}

/// The result of the last round.
pub(in crate::sqlite) fn history(
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

/// The latest time of acceptance among the evicted entries of an app.
pub(in crate::sqlite) fn evicted_until(
    sql: &Connection,
    ledger_id: i64,
    app: &AppKey,
) -> Result<Option<UnixMillis>, StoreError> {
    let read = "SELECT forgotten_until FROM ledger_app WHERE number = ?1";
    let number = apps::number(sql, ledger_id, app)?;
    let until: Option<Option<i64>> =
        sql.prepare_cached(read)?.query_row([number], |row| row.get(0)).optional()?;
    Ok(until.flatten().map(|at| UnixMillis(at.cast_unsigned())))
}
