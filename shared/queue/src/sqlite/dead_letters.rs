//! The statements on dead letters.

use bytes::Bytes;
use push_model::time::UnixMillis;
use push_sqlite::StoreError;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::schema::{Lanes, execute};
use crate::DeadLetter;

/// The dead letters of a namespace after `after`, oldest first, at most `limit`, and the id of the last one.
pub(super) fn list(
    sql: &Connection,
    lanes: &Lanes,
    after: i64,
    limit: usize,
) -> Result<(Vec<DeadLetter>, Option<i64>), StoreError> {
    let statement =
        "SELECT dead.id, lane, reason, died_at, payload FROM dead JOIN body ON body.id = body
        WHERE lane IN (?1, ?2) AND dead.id > ?3 ORDER BY dead.id LIMIT ?4";
    let [jobs, tasks] = lanes.ids();
    let mut last = None;
    let letter = |row: &Row<'_>| {
        let id: i64 = row.get(0)?;
        last = Some(id);
        Ok(DeadLetter {
            id: id.to_string(),
            lane: lanes.lane(row.get(1)?),
            reason: row.get(2)?,
            died_at: Some(UnixMillis(row.get::<_, i64>(3)?.unsigned_abs())),
            payload: Bytes::from(row.get::<_, Vec<u8>>(4)?),
        })
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = sql.prepare_cached(statement)?;
    let rows = statement.query_map(params![jobs, tasks, after, limit], letter)?;
    let letters = rows.collect::<Result<_, _>>()?;
    Ok((letters, last))
}

/// The id of the newest dead letter; 0 if there is none.
pub(super) fn newest(sql: &Connection) -> Result<i64, StoreError> {
    let statement = "SELECT coalesce(max(id), 0) FROM dead";
    Ok(sql.prepare_cached(statement)?.query_row([], |row| row.get(0))?)
}

/// The ids after `after` up to `newest`, oldest first, at most `limit`.
pub(super) fn ids(
    sql: &Connection,
    lanes: &Lanes,
    after: i64,
    newest: i64,
    limit: usize,
) -> Result<Vec<i64>, StoreError> {
    let statement = "SELECT id FROM dead WHERE lane IN (?1, ?2) AND id > ?3 AND id <= ?4
        ORDER BY id LIMIT ?5";
    let [jobs, tasks] = lanes.ids();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = sql.prepare_cached(statement)?;
    let rows = statement.query_map(params![jobs, tasks, after, newest, limit], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Removes a dead letter of this namespace; its lane and body, if it was there.
fn remove(sql: &Connection, lanes: &Lanes, id: i64) -> Result<Option<(i64, i64)>, StoreError> {
    let statement = "DELETE FROM dead WHERE id = ?1 AND lane IN (?2, ?3) RETURNING lane, body";
    let [jobs, tasks] = lanes.ids();
    let lane_and_body = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(sql.prepare_cached(statement)?.query_row([id, jobs, tasks], lane_and_body).optional()?)
}

/// Moves dead letters to the ends of their lanes. Returns how many of the ids existed.
pub(super) fn replay(sql: &Connection, lanes: &Lanes, ids: &[i64]) -> Result<u64, StoreError> {
    let mut count = 0;
    for id in ids {
        if let Some((lane, body)) = remove(sql, lanes, *id)? {
            execute(sql, "INSERT INTO ready (lane, body) VALUES (?1, ?2)", [lane, body])?;
            count += 1;
        }
    }
    Ok(count)
}

/// Deletes dead letters. Returns how many of the ids existed.
pub(super) fn delete(sql: &Connection, lanes: &Lanes, ids: &[i64]) -> Result<u64, StoreError> {
    let mut count = 0;
    for id in ids {
        if let Some((_, body)) = remove(sql, lanes, *id)? {
            execute(sql, "DELETE FROM body WHERE id = ?1", [body])?;
            count += 1;
        }
    }
    Ok(count)
}
