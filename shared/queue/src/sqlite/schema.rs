//! The tables of a queue file, and the lanes in them.
//!
//! An envelope is written once, into `body`, and deleted once. Its state is a small row that refers
//! to it: in `ready` (waiting or claimed), in `delayed`, or in `dead`. So claiming, giving back and
//! dead-lettering write a few bytes, however large the envelope.
//!
//! The order of a lane is `ready.place`, the position of a message, which only grows: a delayed
//! message goes to the end of the lane when its delay is over, and one that is given back keeps its
//! position.
//!
//! Every program that holds deliveries has a row in `holder` ([`super::leases`]).

use push_sqlite::{Schema, StoreError};
use rusqlite::{Connection, Params, params};

use crate::Lane;

pub(super) const SCHEMA: Schema = Schema {
    purpose: "push queue",
    application_id: 0x5055_5351, // "PUSQ"
    migrations: &["
        CREATE TABLE lane (
            id INTEGER PRIMARY KEY,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            UNIQUE (namespace, name)
        ) STRICT;
        CREATE TABLE body (
            id INTEGER PRIMARY KEY,
            payload BLOB NOT NULL,
            -- In Unix milliseconds.
            published_at INTEGER NOT NULL
        ) STRICT;
        CREATE TABLE ready (
            -- Never used twice, so that a late answer cannot mean another message.
            place INTEGER PRIMARY KEY AUTOINCREMENT,
            lane INTEGER NOT NULL,
            body INTEGER NOT NULL,
            deliveries INTEGER NOT NULL DEFAULT 0,
            holder INTEGER,
            claim INTEGER
        ) STRICT;
        CREATE INDEX ready_free ON ready (lane, place) WHERE holder IS NULL;
        CREATE INDEX ready_held ON ready (holder, lane) WHERE holder IS NOT NULL;
        CREATE TABLE delayed (
            body INTEGER PRIMARY KEY,
            lane INTEGER NOT NULL,
            due INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX delayed_due ON delayed (lane, due);
        CREATE TABLE dead (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            lane INTEGER NOT NULL,
            body INTEGER NOT NULL,
            reason TEXT NOT NULL,
            died_at INTEGER NOT NULL
        ) STRICT;
        CREATE TABLE holder (
            id INTEGER PRIMARY KEY,
            beat INTEGER NOT NULL
        ) STRICT;
    "],
};

/// The rows of `lane` that belong to one namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lanes {
    ids: [i64; Lane::QUEUES.len()],
}

impl Lanes {
    /// Reads the rows of a namespace, and makes those that are missing.
    pub(super) fn declare(sql: &Connection, namespace: &str) -> Result<Self, StoreError> {
        let mut ids = [0; Lane::QUEUES.len()];
        for (id, lane) in ids.iter_mut().zip(Lane::QUEUES) {
            let name = params![namespace, lane.name()];
            sql.execute("INSERT OR IGNORE INTO lane (namespace, name) VALUES (?1, ?2)", name)?;
            *id = sql.query_row(
                "SELECT id FROM lane WHERE namespace = ?1 AND name = ?2",
                name,
                |row| row.get(0),
            )?;
        }
        Ok(Self { ids })
    }

    pub(super) fn id(&self, lane: Lane) -> i64 {
        match lane {
            Lane::Jobs => self.ids[0],
            Lane::Tasks => self.ids[1],
            Lane::Isolated => self.ids[2],
        }
    }

    /// The ids of the lanes that a dead letter can come from.
    pub(super) fn ids(&self) -> [i64; Lane::ALL.len()] {
        Lane::ALL.map(|lane| self.id(lane))
    }

    pub(super) fn lane(&self, id: i64) -> Option<Lane> {
        Lane::QUEUES.into_iter().find(|lane| self.id(*lane) == id)
    }
}

/// Runs a statement that the connection keeps prepared. Returns how many rows it changed.
pub(super) fn execute(
    sql: &Connection,
    statement: &str,
    with: impl Params,
) -> Result<usize, StoreError> {
    Ok(sql.prepare_cached(statement)?.execute(with)?)
}
