//! The statements that publish, claim, acknowledge and give back messages.
//!
//! A claim is identified by its holder and a number that the holder never uses twice. Settling
//! requires the claim, so a holder whose lease expired while it was stalled cannot settle a
//! delivery that another holder has by then.

use std::time::Duration;

use bytes::Bytes;
use push_model::time::UnixMillis;
use push_sqlite::StoreError;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::{
    leases::Lease,
    schema::{Lanes, execute},
};
use crate::{Lane, LaneCounts, QueueCounts};

/// A message's position in `ready`, and the claim on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) position: i64,
    pub(super) holder: i64,
    pub(super) number: i64,
}

/// A message that was just claimed.
#[derive(Debug)]
pub(super) struct ClaimedMessage {
    pub(super) claim: Claim,
    /// The number of its deliveries, including this one.
    pub(super) deliveries: u32,
    pub(super) payload: Bytes,
}

fn store(sql: &Connection, payload: &[u8], now: UnixMillis) -> Result<i64, StoreError> {
    let insert = "INSERT INTO body (payload, published_at) VALUES (?1, ?2)";
    execute(sql, insert, params![payload, now.0 as i64])?;
    Ok(sql.last_insert_rowid())
}

pub(super) fn publish(
    sql: &Connection,
    lane: i64,
    payload: &[u8],
    now: UnixMillis,
) -> Result<(), StoreError> {
    let body = store(sql, payload, now)?;
    execute(sql, "INSERT INTO ready (lane, body) VALUES (?1, ?2)", [lane, body])?;
    Ok(())
}

pub(super) fn publish_later(
    sql: &Connection,
    lane: i64,
    payload: &[u8],
    (now, due): (UnixMillis, UnixMillis),
) -> Result<(), StoreError> {
    let body = store(sql, payload, now)?;
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
    let body = store(sql, payload, now)?;
    execute(
        sql,
        "INSERT INTO dead (lane, body, reason, died_at) VALUES (?1, ?2, ?3, ?4)",
        params![lane, body, reason, now.0 as i64],
    )?;
    Ok(())
}

/// Returns true if [`claim`] would claim anything.
pub(super) fn has_ready(sql: &Connection, lane: i64, now: UnixMillis) -> Result<bool, StoreError> {
    let statement = "SELECT EXISTS (SELECT 1 FROM ready WHERE lane = ?1 AND holder IS NULL)
        OR EXISTS (SELECT 1 FROM delayed WHERE lane = ?1 AND due <= ?2)";
    Ok(sql.prepare_cached(statement)?.query_row([lane, now.0 as i64], |row| row.get(0))?)
}

/// Counts the messages that wait or are claimed, including those whose delay is over.
pub(super) fn depth(sql: &Connection, lane: i64, now: UnixMillis) -> Result<u64, StoreError> {
    let statement = "SELECT (SELECT count(*) FROM ready WHERE lane = ?1 AND holder IS NULL)
        + (SELECT count(*) FROM ready WHERE lane = ?1 AND holder IS NOT NULL)
        + (SELECT count(*) FROM delayed WHERE lane = ?1 AND due <= ?2)";
    let count: i64 =
        sql.prepare_cached(statement)?.query_row([lane, now.0 as i64], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Returns what the lanes hold. Only programs with a lease have consumers, and each consumes all
/// lanes.
pub(super) fn counts(
    sql: &Connection,
    lanes: &Lanes,
    now: UnixMillis,
) -> Result<QueueCounts, StoreError> {
    let number = |statement: &str, with: &[i64]| -> Result<u64, StoreError> {
        let count: i64 =
            sql.prepare_cached(statement)?.query_row(params_from_iter(with), |row| row.get(0))?;
        Ok(count.unsigned_abs())
    };
    let now_ms = now.0 as i64;
    let consumers = number("SELECT count(*) FROM holder", &[])?;
    let mut all = QueueCounts::default();
    for lane in Lane::QUEUES {
        let id = lanes.id(lane);
        let ready = "SELECT (SELECT count(*) FROM ready WHERE lane = ?1 AND holder IS NULL)
            + (SELECT count(*) FROM delayed WHERE lane = ?1 AND due <= ?2)";
        let first = "SELECT published_at FROM ready JOIN body ON body.id = ready.body
            WHERE lane = ?1 AND holder IS NULL ORDER BY place LIMIT 1";
        let published_at: Option<i64> =
            sql.prepare_cached(first)?.query_row([id], |row| row.get(0)).optional()?;
        let published_at = published_at.map(|at| UnixMillis(at.unsigned_abs()));
        *all.lane_mut(lane) = LaneCounts {
            ready: number(ready, &[id, now_ms])?,
            consumers,
            oldest: published_at.map_or(Duration::ZERO, |at| now.since(at)),
        };
        let delayed = "SELECT count(*) FROM delayed WHERE lane = ?1 AND due > ?2";
        all.delayed += number(delayed, &[id, now_ms])?;
        all.dead += number("SELECT count(*) FROM dead WHERE lane = ?1", &[id])?;
    }
    Ok(all)
}

/// Moves delayed messages whose delay is over to the end of the lane, at most `most`.
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

/// Claims the first messages of a lane, at most `most`, for the holder of a lease.
pub(super) fn claim(
    sql: &Connection,
    lane: i64,
    lease: &Lease,
    most: usize,
    now: UnixMillis,
) -> Result<Vec<ClaimedMessage>, StoreError> {
    let (holder, number) = (lease.holder, lease.next_claim());
    promote(sql, lane, now, most)?;
    let first = "SELECT place, deliveries, payload FROM ready JOIN body ON body.id = ready.body
        WHERE lane = ?1 AND holder IS NULL ORDER BY place LIMIT ?2";
    let claimed: Vec<ClaimedMessage> = sql
        .prepare_cached(first)?
        .query_map(params![lane, most as i64], |row| {
            Ok(ClaimedMessage {
                claim: Claim { position: row.get(0)?, holder, number },
                deliveries: u32::try_from(row.get::<_, i64>(1)?.saturating_add(1))
                    .unwrap_or(u32::MAX),
                payload: Bytes::from(row.get::<_, Vec<u8>>(2)?),
            })
        })?
        .collect::<Result<_, _>>()?;
    if !claimed.is_empty() {
        // If this holder's lease had expired, its row is missing: the claim needs it again.
        let insert = "INSERT OR IGNORE INTO holder (id, beat) VALUES (?1, 1)";
        if execute(sql, insert, [holder])? > 0 {
            lease.mark_lost(number);
        }
    }
    for ClaimedMessage { claim, .. } in &claimed {
        let update = "UPDATE ready SET holder = ?1, claim = ?2, deliveries = deliveries + 1
            WHERE place = ?3";
        execute(sql, update, [holder, number, claim.position])?;
    }
    Ok(claimed)
}

/// Deletes a claimed message. False if the claim does not hold any more.
pub(super) fn acknowledge(sql: &Connection, claim: Claim) -> Result<bool, StoreError> {
    let delete = "DELETE FROM ready WHERE place = ?1 AND holder = ?2 AND claim = ?3 RETURNING body";
    let body: Option<i64> = sql
        .prepare_cached(delete)?
        .query_row([claim.position, claim.holder, claim.number], |row| row.get(0))
        .optional()?;
    if let Some(body) = body {
        execute(sql, "DELETE FROM body WHERE id = ?1", [body])?;
    }
    Ok(body.is_some())
}

/// Gives a claimed message back. A message that was not handed out does not count as delivered. Does
/// nothing if the claim does not hold any more.
pub(super) fn give_back(
    sql: &Connection,
    claim: Claim,
    handed_out: bool,
) -> Result<(), StoreError> {
    let update = "UPDATE ready SET holder = NULL, claim = NULL, deliveries = deliveries - ?4
        WHERE place = ?1 AND holder = ?2 AND claim = ?3";
    let not_delivered = i64::from(!handed_out);
    execute(sql, update, [claim.position, claim.holder, claim.number, not_delivered])?;
    Ok(())
}
