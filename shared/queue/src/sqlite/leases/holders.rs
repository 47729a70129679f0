//! The statements on the table of holders.

use push_sqlite::StoreError;
use rusqlite::{Connection, params};

use super::lease::Lease;
use crate::sqlite::schema::execute;

/// Writes a heartbeat for the holder of a lease.
pub(crate) fn beat(sql: &Connection, lease: &Lease) -> Result<(), StoreError> {
    let next = "UPDATE holder SET beat = beat + 1 WHERE id = ?1";
    if execute(sql, next, [lease.holder])? == 0 {
        execute(sql, "INSERT INTO holder (id, beat) VALUES (?1, 1)", [lease.holder])?;
        lease.mark_lost(lease.next_claim());
    }
    Ok(())
}

/// Every holder with the number of its last heartbeat.
pub(crate) fn all_holders(sql: &Connection) -> Result<Vec<(i64, i64)>, StoreError> {
    let mut statement = sql.prepare_cached("SELECT id, beat FROM holder")?;
    let holders = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(holders.collect::<Result<_, _>>()?)
}

/// Deletes a holder and gives back its deliveries; with a `beat` only if that is still its last
/// heartbeat. Returns the number of deliveries.
pub(crate) fn release(
    sql: &Connection,
    holder: i64,
    beat: Option<i64>,
) -> Result<usize, StoreError> {
    let delete = "DELETE FROM holder WHERE id = ?1 AND (?2 IS NULL OR beat = ?2)";
    if execute(sql, delete, params![holder, beat])? == 0 {
        return Ok(0);
    }
    execute(sql, "UPDATE ready SET holder = NULL, claim = NULL WHERE holder = ?1", [holder])
}
