//! The statements about holders.

use push_sqlite::StoreError;
use rusqlite::{Connection, params};

use super::{lease::Lease, schema::execute};

/// Shows that the holder of a lease lives.
pub(super) fn beat(sql: &Connection, lease: &Lease) -> Result<(), StoreError> {
    let again = "UPDATE holder SET beat = beat + 1 WHERE id = ?1";
    if execute(sql, again, [lease.holder])? == 0 {
        execute(sql, "INSERT INTO holder (id, beat) VALUES (?1, 1)", [lease.holder])?;
        lease.was_lost(lease.next_claim());
    }
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
) -> Result<usize, StoreError> {
    let gone = "DELETE FROM holder WHERE id = ?1 AND (?2 IS NULL OR beat = ?2)";
    if execute(sql, gone, params![holder, beat])? == 0 {
        return Ok(0);
    }
    execute(sql, "UPDATE ready SET holder = NULL, claim = NULL WHERE holder = ?1", [holder])
}
