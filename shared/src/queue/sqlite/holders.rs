//! The statements about holders.

use rusqlite::{Connection, params};

use super::{messages::put_aside, schema::execute};
use crate::{sqlite::StoreError, time::UnixMillis};

/// Shows that a holder lives.
pub(super) fn beat(sql: &Connection, holder: i64) -> Result<(), StoreError> {
    let statement = "INSERT INTO holder (id, beat) VALUES (?1, 1)
        ON CONFLICT (id) DO UPDATE SET beat = beat + 1";
    execute(sql, statement, [holder])?;
    Ok(())
}

/// Every holder with the number of its last beat.
pub(super) fn all(sql: &Connection) -> Result<Vec<(i64, i64)>, StoreError> {
    let mut statement = sql.prepare_cached("SELECT id, beat FROM holder")?;
    let holders = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(holders.collect::<Result<_, _>>()?)
}

/// Ends a holder that is leaving, or that has not moved since `beat`, and gives back what it
/// held. Returns how many messages that were.
pub(super) fn release(
    sql: &Connection,
    holder: i64,
    beat: Option<i64>,
    now: UnixMillis,
) -> Result<usize, StoreError> {
    let gone = "DELETE FROM holder WHERE id = ?1 AND (?2 IS NULL OR beat = ?2)";
    if execute(sql, gone, params![holder, beat])? == 0 {
        return Ok(0);
    }
    let held: Vec<i64> = sql
        .prepare_cached("SELECT place FROM ready WHERE holder = ?1")?
        .query_map([holder], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for place in &held {
        let back = "UPDATE ready SET holder = NULL, claim = NULL WHERE place = ?1";
        execute(sql, back, [place])?;
        put_aside(sql, *place, now)?;
    }
    Ok(held.len())
}
