//! The tables of a file that holds an index, a ledger or both.
//!
//! `schema.sql` creates them.
//!
//! A device has a *slot* of its app, and a broadcast is cut into ranges of slots. A freed slot goes
//! onto the free list and is used again before a new one is made. So an app uses only as many slots
//! as it ever had devices at the same time. A message does not reach a device that took over a slot
//! after the message was accepted, because the time of registration, `born`, is compared.
//!
//! Attribute values and topics are replaced by codes from a dictionary, the table `word`, for each app and
//! attribute. A code keeps its meaning for as long as a device has it. A transaction that reads
//! devices reads the values of their codes from the same snapshot.
//!
//! The code of the ledger, in `shared/ledger/src/sqlite`, explains its tables.

use push_sqlite::{Schema, StoreError};
use rusqlite::{Connection, Params};

pub(super) const SCHEMA: Schema = Schema {
    purpose: "push index",
    application_id: 0x5055_5349, // "PUSI"
    migrations: &[include_str!("schema.sql")],
};

/// Runs a statement, which stays prepared. Returns the number of changed rows.
///
/// # Errors
/// If the file cannot be read or written.
pub fn execute(sql: &Connection, statement: &str, with: impl Params) -> Result<usize, StoreError> {
    Ok(sql.prepare_cached(statement)?.execute(with)?)
}
