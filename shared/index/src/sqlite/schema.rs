//! The tables of an index file.
//!
//! `schema.sql` creates them.
//!
//! A device has a *slot* of its app, and a broadcast is cut into ranges of slots. A freed slot goes
//! onto the free list and is used again before a new one is made. So an app uses only as many slots
//! as it ever had devices at the same time. A message does not reach a device that took over a slot
//! after the message was accepted, because the time of registration, `born`, is compared.
//!
//! Attribute values are replaced by codes from a dictionary, the table `word`, for each app and
//! attribute. A code keeps its meaning for as long as a device has it. A transaction that reads
//! devices reads the values of their codes from the same snapshot.
//!
//! The code of the ledger explains its tables ([`super::ledger`]).

use push_model::{app::AppKey, ids::AppId};
use push_sqlite::{Schema, StoreError};
use rusqlite::{Connection, OptionalExtension, Params, params};

pub(super) const SCHEMA: Schema = Schema {
    purpose: "push index",
    application_id: 0x5055_5349, // "PUSI"
    migrations: &[include_str!("schema.sql")],
};

/// The id of this namespace's ledger, if it has one.
pub(super) fn ledger_id(sql: &Connection, namespace: &str) -> Result<Option<i64>, StoreError> {
    let find = "SELECT space FROM ledger WHERE namespace = ?1";
    Ok(sql.prepare_cached(find)?.query_row([namespace], |row| row.get(0)).optional()?)
}

/// The id of this namespace's ledger, which is created if there is none.
pub(super) fn create_ledger(sql: &Connection, namespace: &str) -> Result<i64, StoreError> {
    execute(sql, "INSERT OR IGNORE INTO ledger (namespace) VALUES (?1)", [namespace])?;
    let missing = || StoreError::Unreadable(format!("the file has no ledger of {namespace}"));
    ledger_id(sql, namespace)?.ok_or_else(missing)
}

/// Runs a statement, which stays prepared. Returns the number of changed rows.
pub(super) fn execute(
    sql: &Connection,
    statement: &str,
    with: impl Params,
) -> Result<usize, StoreError> {
    Ok(sql.prepare_cached(statement)?.execute(with)?)
}

/// The row of an app that exists or has devices.
pub(super) fn app_row(
    sql: &Connection,
    namespace: &str,
    app: &AppKey,
) -> Result<Option<i64>, StoreError> {
    let find = "SELECT id FROM app WHERE namespace = ?1 AND name = ?2 AND generation = ?3";
    let with = params![namespace, app.id.as_str(), app.generation.cast_signed()];
    Ok(sql.prepare_cached(find)?.query_row(with, |row| row.get(0)).optional()?)
}

/// The generation of the app of this name; if there is none, of the next one.
pub(super) fn generation(
    sql: &Connection,
    namespace: &str,
    app: &AppId,
) -> Result<u64, StoreError> {
    let find = "SELECT count FROM removed_app WHERE namespace = ?1 AND name = ?2";
    let with = [namespace, app.as_str()];
    let count: Option<i64> =
        sql.prepare_cached(find)?.query_row(with, |row| row.get(0)).optional()?;
    Ok(count.unwrap_or_default().cast_unsigned())
}
