//! Freeing the values of dictionaries that no device has.
//!
//! A sweep marks all values of an app as retired, reads which codes its devices have, and frees the
//! values that are still retired and that no device had. A registration that uses a retired value takes
//! the mark off. So a device that is registered while the sweep reads is either read, or its values have no
//! mark any more. The reading needs no write transaction, so registrations do not wait for it. A sweep has a
//! number, which tells it from another one that began since.
//!
//! Before that, a sweep takes away the values of custom attributes that the app no longer declares ([`undeclared`]).

mod undeclared;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use push_model::{app::AppKey, attributes::Attribute, filter::Column, time::UnixMillis};
use push_sqlite::StoreError;
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, OptionalExtension, params};
use tracing::info;

use super::{
    criteria::CodeSet,
    dictionary::{column, most_values, number},
    profile::ProfileCodes,
};
use crate::{
    DICTIONARY_VALUE_OVERHEAD, DictionarySweeps, DictionaryUse, SweepStep, Swept,
    sqlite::{SqliteIndex, apps::app_row},
};

/// Values to free in one transaction.
const FREE_VALUES: i64 = 4096;

/// Marks all values of an app as retired. Returns the number of the sweep; none if the app was removed.
fn mark(sql: &Connection, app: i64, now: UnixMillis) -> Result<Option<i64>, StoreError> {
    execute(sql, "UPDATE word SET retired = 1 WHERE app = ?1 AND retired = 0", [app])?;
    let begin = "UPDATE app SET sweep = sweep + 1, swept_at = ?2, grown = 0, refused = 0
        WHERE id = ?1 AND namespace IS NOT NULL RETURNING sweep";
    let with = params![app, (now.0 / 1000).cast_signed()];
    Ok(sql.prepare_cached(begin)?.query_row(with, |row| row.get(0)).optional()?)
}

/// The numbers of the columns of which an app's dictionaries have values.
fn columns(sql: &Connection, app: i64) -> Result<Vec<i64>, StoreError> {
    let read = "SELECT attribute FROM dictionary WHERE app = ?1";
    let mut statement = sql.prepare_cached(read)?;
    Ok(statement.query_map([app], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// The codes that the devices of an app have, by the number of their column.
fn codes_of_devices(sql: &Connection, app: i64) -> Result<HashMap<i64, CodeSet>, StoreError> {
    let read = "SELECT country, language, brand, model, os_version, app_version, custom, topics
        FROM device WHERE app = ?1";
    let mut built_in: [CodeSet; Attribute::COUNT] = Default::default();
    let mut seen: HashMap<i64, CodeSet> = HashMap::new();
    let mut statement = sql.prepare_cached(read)?;
    let mut rows = statement.query([app])?;
    while let Some(row) = rows.next()? {
        for (at, codes) in built_in.iter_mut().enumerate() {
            if let Some(code) = row.get(at)? {
                codes.add(code);
            }
        }
        let Some(profile) = readable(ProfileCodes::of_columns(row, Attribute::COUNT))? else {
            continue;
        };
        for (column, code) in profile.codes() {
            seen.entry(number(column)).or_default().add(code.into());
        }
    }
    seen.extend((0..).zip(built_in));
    Ok(seen)
}

/// What was read; none for a device whose profile cannot be read. That keeps no other from being swept.
fn readable<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(StoreError::Unreadable(_)) => Ok(None),
        read => read.map(Some),
    }
}

/// Frees retired values behind a code of a column, unless a device had them; the code behind which to go
/// on, and how many were freed. None at the end, or if another sweep has begun.
fn free(
    sql: &Connection,
    app: i64,
    sweep: i64,
    attribute: i64,
    behind: i64,
    seen: &CodeSet,
) -> Result<(Option<i64>, u64), StoreError> {
    let current: Option<i64> = sql
        .prepare_cached("SELECT sweep FROM app WHERE id = ?1 AND namespace IS NOT NULL")?
        .query_row([app], |row| row.get(0))
        .optional()?;
    if current != Some(sweep) {
        return Ok((None, 0));
    }
    let retired = "SELECT code, length(CAST(value AS BLOB)) FROM word
        WHERE app = ?1 AND attribute = ?2 AND code > ?3 AND retired = 1 ORDER BY code LIMIT ?4";
    let found: Vec<(i64, i64)> = sql
        .prepare_cached(retired)?
        .query_map([app, attribute, behind, FREE_VALUES], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let (mut freed, mut bytes) = (0, 0);
    for (code, length) in &found {
        if seen.has(*code) {
            let keep = "UPDATE word SET retired = 0
                WHERE app = ?1 AND attribute = ?2 AND code = ?3";
            execute(sql, keep, [app, attribute, *code])?;
            continue;
        }
        let free = "DELETE FROM word WHERE app = ?1 AND attribute = ?2 AND code = ?3";
        execute(sql, free, [app, attribute, *code])?;
        let add = "INSERT INTO free_code (app, attribute, code) VALUES (?1, ?2, ?3)";
        execute(sql, add, [app, attribute, *code])?;
        freed += 1;
        bytes += length + DICTIONARY_VALUE_OVERHEAD as i64;
    }
    if freed > 0 {
        let count = "UPDATE dictionary SET used = used - ?3, bytes = bytes - ?4
            WHERE app = ?1 AND attribute = ?2";
        execute(sql, count, [app, attribute, freed, bytes])?;
        let change = "UPDATE app SET dictionary_version = dictionary_version + 1 WHERE id = ?1";
        execute(sql, change, [app])?;
    }
    Ok((found.last().map(|(code, _)| *code), freed.unsigned_abs()))
}

/// Returns how full the dictionaries of the apps of a namespace are.
fn all_uses(
    sql: &Connection,
    namespace: &str,
    most_topics: usize,
    now: UnixMillis,
) -> Result<Vec<(AppKey, DictionaryUse)>, StoreError> {
    let read = "SELECT app.id, name, generation, grown, refused, swept_at, attribute, used, bytes
        FROM app JOIN dictionary ON dictionary.app = app.id
        WHERE namespace = ?1 ORDER BY app.id";
    let mut statement = sql.prepare_cached(read)?;
    let mut rows = statement.query([namespace])?;
    let mut uses: Vec<(i64, AppKey, DictionaryUse)> = Vec::new();
    while let Some(row) = rows.next()? {
        let row_id: i64 = row.get(0)?;
        if uses.last().is_none_or(|(last, ..)| *last != row_id) {
            let name: String = row.get(1)?;
            let Ok(id) = name.parse() else { continue };
            let swept_at: Option<i64> = row.get(5)?;
            let seconds = |at: i64| (now.0 / 1000).saturating_sub(at.unsigned_abs());
            let used = DictionaryUse {
                grown: row.get::<_, i64>(3)?.unsigned_abs(),
                refused: row.get::<_, i64>(4)?.unsigned_abs(),
                since_sweep: swept_at.map(|at| Duration::from_secs(seconds(at))),
                undeclared: !undeclared::ids(sql, row_id)?.is_empty(),
                ..DictionaryUse::default()
            };
            let generation = row.get::<_, i64>(2)?.cast_unsigned();
            uses.push((row_id, AppKey { id, generation }, used));
        }
        if let Some((.., used)) = uses.last_mut() {
            let values = row.get::<_, i64>(7)?.unsigned_abs();
            match column(row.get(6)?) {
                Some(Column::BuiltIn(attribute)) => used.values[attribute.index()] = values,
                Some(other) => used.note_other(other, values, most_values(other, most_topics)),
                None => {}
            }
            used.bytes += row.get::<_, i64>(8)?.unsigned_abs();
        }
    }
    Ok(uses.into_iter().map(|(_, app, used)| (app, used)).collect())
}

#[async_trait]
impl DictionarySweeps for SqliteIndex {
    async fn filled_dictionaries(&self) -> Result<Vec<(AppKey, DictionaryUse)>, IndexError> {
        let (namespace, most) = (self.namespace(), self.most_topics.load(Ordering::Relaxed));
        let read = move |sql: &Connection| all_uses(sql, &namespace, most, UnixMillis::now());
        let uses = self.database.read(read).await?;
        Ok(uses.into_iter().filter(|(_, used)| used.matters()).collect())
    }

    /// Two programs that sweep at the same time free nothing that one alone would not.
    async fn acquire_sweeping(&self) -> Result<bool, IndexError> {
        Ok(true)
    }

    /// The whole sweep, which is safe at any time.
    async fn sweep(&self, app: &AppKey, _: SweepStep) -> Result<Swept, IndexError> {
        let (namespace, key) = (self.namespace(), app.clone());
        let find = move |sql: &Connection| app_row(sql, &namespace, &key);
        let Some(row) = self.database.read(find).await? else { return Ok(Swept::default()) };
        undeclared::remove(&self.database, row).await?;
        let begin = move |sql: &Connection| mark(sql, row, UnixMillis::now());
        let Some(sweep) = self.database.write(begin).await? else { return Ok(Swept::default()) };
        let read = move |sql: &Connection| Ok((columns(sql, row)?, codes_of_devices(sql, row)?));
        let (columns, mut seen) = self.database.read(read).await?;
        let mut freed = 0;
        for attribute in columns {
            let seen = Arc::new(seen.remove(&attribute).unwrap_or_default());
            let mut behind = Some(0);
            while let Some(last) = behind {
                let seen = Arc::clone(&seen);
                let free = move |sql: &Connection| free(sql, row, sweep, attribute, last, &seen);
                let (next, count) = self.database.write(free).await?;
                (behind, freed) = (next, freed + count);
            }
        }
        undeclared::forget(&self.database, row).await?;
        if freed > 0 {
            info!(%app, freed, "dictionaries were swept");
        }
        Ok(Swept { retired: 0, freed })
    }
}
