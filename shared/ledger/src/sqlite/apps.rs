//! The numbers of apps in the ledger. Each app of a name has its own, so entries of different apps never
//! share a key.

use push_model::app::AppKey;
use push_sqlite::StoreError;
use push_store::sqlite::execute;
use rusqlite::{Connection, OptionalExtension, params};

use super::bits;

/// The number of an app without entries.
pub(super) const NONE: i64 = 0;

/// The number of an app; [`NONE`] if it never had an entry.
pub(super) fn number(sql: &Connection, ledger_id: i64, app: &AppKey) -> Result<i64, StoreError> {
    let find = "SELECT number FROM ledger_app WHERE space = ?1 AND name = ?2 AND generation = ?3";
    let with = params![ledger_id, app.id.as_str(), bits(app.generation)];
    let known = sql.prepare_cached(find)?.query_row(with, |row| row.get(0)).optional()?;
    Ok(known.unwrap_or(NONE))
}

/// The number of an app, which is assigned if it has none.
pub(super) fn assigned_number(
    sql: &Connection,
    ledger_id: i64,
    app: &AppKey,
) -> Result<i64, StoreError> {
    let known = number(sql, ledger_id, app)?;
    if known != NONE {
        return Ok(known);
    }
    let add = "INSERT INTO ledger_app (space, name, generation) VALUES (?1, ?2, ?3)";
    execute(sql, add, params![ledger_id, app.id.as_str(), bits(app.generation)])?;
    Ok(sql.last_insert_rowid())
}
