//! The tables of a queue file, and every statement on them.
//!
//! An envelope is written once, into `body`, and deleted once. Where it stands is a small row
//! that refers to it: in `ready` (waiting or held), in `delayed`, or in `dead`. So claiming,
//! giving back and putting aside move a few bytes, however large the envelope.
//!
//! The order of a lane is `ready.place`, which only grows: a message that was delayed goes to the
//! end of the lane when its time has come, and one that is given back keeps its place.
//!
//! A claim is named by its holder and a number that the holder never uses twice. Everything that
//! is done with a delivery requires its claim, so a holder that was taken for dead and lives on
//! can do no harm.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    queue::{Lane, MAX_DELIVERIES},
    sqlite::{Schema, StoreError},
    time::UnixMillis,
};

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
            payload BLOB NOT NULL
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
        CREATE INDEX dead_lane ON dead (lane);
        CREATE TABLE holder (
            id INTEGER PRIMARY KEY,
            beat INTEGER NOT NULL
        ) STRICT;
    "],
};

/// The rows of `lane` that belong to one namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lanes {
    ids: [i64; Lane::ALL.len()],
}

impl Lanes {
    /// Makes them if need be.
    pub(super) fn declare(sql: &Connection, namespace: &str) -> Result<Self, StoreError> {
        let mut ids = [0; Lane::ALL.len()];
        for (id, lane) in ids.iter_mut().zip(Lane::ALL) {
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
        }
    }

    /// The ids of all lanes.
    pub(super) fn ids(&self) -> [i64; Lane::ALL.len()] {
        self.ids
    }

    pub(super) fn lane(&self, id: i64) -> Option<Lane> {
        Lane::ALL.into_iter().find(|lane| self.id(*lane) == id)
    }
}

/// What names a claimed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) place: i64,
    pub(super) holder: i64,
    pub(super) number: i64,
}

/// A message that was claimed.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) claim: Claim,
    pub(super) redelivered: bool,
    pub(super) payload: Bytes,
}

fn execute(
    sql: &Connection,
    statement: &str,
    with: impl rusqlite::Params,
) -> Result<usize, StoreError> {
    Ok(sql.prepare_cached(statement)?.execute(with)?)
}

fn store(sql: &Connection, payload: &[u8]) -> Result<i64, StoreError> {
    execute(sql, "INSERT INTO body (payload) VALUES (?1)", [payload])?;
    Ok(sql.last_insert_rowid())
}

pub(super) fn publish(sql: &Connection, lane: i64, payload: &[u8]) -> Result<(), StoreError> {
    let body = store(sql, payload)?;
    execute(sql, "INSERT INTO ready (lane, body) VALUES (?1, ?2)", [lane, body])?;
    Ok(())
}

pub(super) fn publish_later(
    sql: &Connection,
    lane: i64,
    payload: &[u8],
    due: UnixMillis,
) -> Result<(), StoreError> {
    let body = store(sql, payload)?;
    execute(
        sql,
        "INSERT INTO delayed (body, lane, due) VALUES (?1, ?2, ?3)",
        params![body, lane, due.0 as i64],
    )?;
    Ok(())
}

pub(super) fn publish_dead(
    sql: &Connection,
    lane: i64,
    payload: &[u8],
    reason: &str,
    now: UnixMillis,
) -> Result<(), StoreError> {
    let body = store(sql, payload)?;
    execute(
        sql,
        "INSERT INTO dead (lane, body, reason, died_at) VALUES (?1, ?2, ?3, ?4)",
        params![lane, body, reason, now.0 as i64],
    )?;
    Ok(())
}

/// Whether a claim would find something.
pub(super) fn has_ready(sql: &Connection, lane: i64, now: UnixMillis) -> Result<bool, StoreError> {
    let statement = "SELECT EXISTS (SELECT 1 FROM ready WHERE lane = ?1 AND holder IS NULL)
        OR EXISTS (SELECT 1 FROM delayed WHERE lane = ?1 AND due <= ?2)";
    Ok(sql.prepare_cached(statement)?.query_row([lane, now.0 as i64], |row| row.get(0))?)
}

/// How many messages are waiting or held, those included whose delay is over.
pub(super) fn depth(sql: &Connection, lane: i64, now: UnixMillis) -> Result<u64, StoreError> {
    let statement = "SELECT (SELECT count(*) FROM ready WHERE lane = ?1 AND holder IS NULL)
        + (SELECT count(*) FROM ready WHERE lane = ?1 AND holder IS NOT NULL)
        + (SELECT count(*) FROM delayed WHERE lane = ?1 AND due <= ?2)";
    let count: i64 =
        sql.prepare_cached(statement)?.query_row([lane, now.0 as i64], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Moves delayed messages whose time has come to the end of the lane, at most `most`.
fn promote(sql: &Connection, lane: i64, now: UnixMillis, most: usize) -> Result<(), StoreError> {
    let due = "SELECT body FROM delayed WHERE lane = ?1 AND due <= ?2 ORDER BY due, body LIMIT ?3";
    let bodies: Vec<i64> = sql
        .prepare_cached(due)?
        .query_map(params![lane, now.0 as i64, most as i64], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for body in bodies {
        execute(sql, "DELETE FROM delayed WHERE body = ?1", [body])?;
        execute(sql, "INSERT INTO ready (lane, body) VALUES (?1, ?2)", [lane, body])?;
    }
    Ok(())
}

/// Claims the first messages of a lane, at most `most`, for `holder`.
pub(super) fn claim(
    sql: &Connection,
    lane: i64,
    holder: i64,
    number: i64,
    most: usize,
    now: UnixMillis,
) -> Result<Vec<Claimed>, StoreError> {
    promote(sql, lane, now, most)?;
    let first = "SELECT place, deliveries, payload FROM ready JOIN body ON body.id = ready.body
        WHERE lane = ?1 AND holder IS NULL ORDER BY place LIMIT ?2";
    let claimed: Vec<Claimed> = sql
        .prepare_cached(first)?
        .query_map(params![lane, most as i64], |row| {
            Ok(Claimed {
                claim: Claim { place: row.get(0)?, holder, number },
                redelivered: row.get::<_, i64>(1)? > 0,
                payload: Bytes::from(row.get::<_, Vec<u8>>(2)?),
            })
        })?
        .collect::<Result<_, _>>()?;
    if !claimed.is_empty() {
        // A holder that was taken for dead lives again by its next claim.
        execute(sql, "INSERT OR IGNORE INTO holder (id, beat) VALUES (?1, 1)", [holder])?;
    }
    for Claimed { claim, .. } in &claimed {
        let take = "UPDATE ready SET holder = ?1, claim = ?2, deliveries = deliveries + 1
            WHERE place = ?3";
        execute(sql, take, [holder, number, claim.place])?;
    }
    Ok(claimed)
}

/// Deletes a claimed message. False if the claim does not hold any more.
pub(super) fn acknowledge(sql: &Connection, claim: Claim) -> Result<bool, StoreError> {
    let take = "DELETE FROM ready WHERE place = ?1 AND holder = ?2 AND claim = ?3 RETURNING body";
    let body: Option<i64> = sql
        .prepare_cached(take)?
        .query_row([claim.place, claim.holder, claim.number], |row| row.get(0))
        .optional()?;
    if let Some(body) = body {
        execute(sql, "DELETE FROM body WHERE id = ?1", [body])?;
    }
    Ok(body.is_some())
}

/// Gives a claimed message back; one that was handed out often enough is put aside instead.
/// One that nobody got to see does not count as delivered. Nothing happens if the claim does not
/// hold any more.
pub(super) fn give_back(
    sql: &Connection,
    claim: Claim,
    handed_out: bool,
    now: UnixMillis,
) -> Result<(), StoreError> {
    let back = "UPDATE ready SET holder = NULL, claim = NULL, deliveries = deliveries - ?4
        WHERE place = ?1 AND holder = ?2 AND claim = ?3";
    let unseen = i64::from(!handed_out);
    let count = execute(sql, back, [claim.place, claim.holder, claim.number, unseen])?;
    if count > 0 {
        put_aside(sql, claim.place, now)?;
    }
    Ok(())
}

/// Moves a message that nobody holds to the dead letters if it was delivered too often.
fn put_aside(sql: &Connection, place: i64, now: UnixMillis) -> Result<(), StoreError> {
    let worn_out = "DELETE FROM ready WHERE place = ?1 AND deliveries >= ?2 RETURNING lane, body";
    let found: Option<(i64, i64)> = sql
        .prepare_cached(worn_out)?
        .query_row([place, i64::from(MAX_DELIVERIES)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((lane, body)) = found {
        let reason = format!("delivered {MAX_DELIVERIES} times without being settled");
        execute(
            sql,
            "INSERT INTO dead (lane, body, reason, died_at) VALUES (?1, ?2, ?3, ?4)",
            params![lane, body, reason, now.0 as i64],
        )?;
    }
    Ok(())
}

/// Shows that a holder lives.
pub(super) fn beat(sql: &Connection, holder: i64) -> Result<(), StoreError> {
    let statement = "INSERT INTO holder (id, beat) VALUES (?1, 1)
        ON CONFLICT (id) DO UPDATE SET beat = beat + 1";
    execute(sql, statement, [holder])?;
    Ok(())
}

/// Every holder with the number of its last beat.
pub(super) fn holders(sql: &Connection) -> Result<Vec<(i64, i64)>, StoreError> {
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
