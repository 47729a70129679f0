//! Taking away the values of custom attributes that an app no longer declares.
//!
//! An id is never declared twice, so nobody asks for these values; they only take room. A program with an older
//! record of the app may store some once more, which the next sweep takes away. Each step reads the app's record in
//! its own transaction, so it knows every attribute of which a value can be stored.

use push_model::{app::App, custom::CustomId, filter::Column};
use push_sqlite::{Database, StoreError};
use push_store::sqlite::execute;
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    super::{
        dictionary::{column, number},
        profile::ProfileCodes,
    },
    FREE_VALUES, columns, readable,
};

/// The custom attributes that an app's dictionaries have values of and that it does not declare. None if there is no
/// record that can be read: an app may be on its way from another store.
pub(super) fn ids(sql: &Connection, app: i64) -> Result<Vec<CustomId>, StoreError> {
    let custom = |number| match column(number) {
        Some(Column::Custom(id)) => Some(id),
        _ => None,
    };
    let mut found: Vec<_> = columns(sql, app)?.into_iter().filter_map(custom).collect();
    if found.is_empty() {
        return Ok(found);
    }
    let record: Option<Option<String>> = sql
        .prepare_cached("SELECT record FROM app WHERE id = ?1")?
        .query_row([app], |row| row.get(0))
        .optional()?;
    let Some(json) = record.flatten() else { return Ok(Vec::new()) };
    let Ok(app) = serde_json::from_str::<App>(&json) else { return Ok(Vec::new()) };
    found.retain(|id| app.attributes.by_id(*id).is_none());
    Ok(found)
}

/// Takes the values away from all devices.
pub(super) async fn remove(database: &Database, app: i64) -> Result<(), StoreError> {
    let mut from = Some(0);
    while let Some(slot) = from {
        from = database.write(move |sql| remove_some(sql, app, slot)).await?;
    }
    Ok(())
}

/// Takes the values away from some devices, from a slot on. Returns the slot from which to go on.
fn remove_some(sql: &Connection, app: i64, from: i64) -> Result<Option<i64>, StoreError> {
    let undeclared = ids(sql, app)?;
    if undeclared.is_empty() {
        return Ok(None);
    }
    let read = "SELECT custom, NULL, slot FROM device
        WHERE app = ?1 AND slot >= ?2 AND custom IS NOT NULL ORDER BY slot LIMIT ?3";
    let mut statement = sql.prepare_cached(read)?;
    let mut rows = statement.query([app, from, FREE_VALUES])?;
    let (mut changed, mut next) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        let slot: i64 = row.get(2)?;
        next = Some(slot + 1);
        let Some(mut profile) = readable(ProfileCodes::of_columns(row, 0))? else { continue };
        if profile.retain_custom(|id| !undeclared.contains(&id)) {
            changed.push((slot, profile.custom_column()));
        }
    }
    let update = "UPDATE device SET custom = ?3 WHERE app = ?1 AND slot = ?2";
    for (slot, custom) in changed {
        execute(sql, update, params![app, slot, custom])?;
    }
    Ok(next)
}

/// Forgets the empty dictionaries of attributes that are not declared.
pub(super) async fn forget(database: &Database, app: i64) -> Result<(), StoreError> {
    while database.write(move |sql| forget_some(sql, app)).await? {}
    Ok(())
}

/// Forgets a part of them. False if there is nothing left to do.
fn forget_some(sql: &Connection, app: i64) -> Result<bool, StoreError> {
    for id in ids(sql, app)? {
        let attribute = number(Column::Custom(id));
        let used = "SELECT used FROM dictionary WHERE app = ?1 AND attribute = ?2";
        let used: i64 = sql.prepare_cached(used)?.query_row([app, attribute], |row| row.get(0))?;
        if used > 0 {
            continue;
        }
        let free = "DELETE FROM free_code WHERE app = ?1 AND attribute = ?2 AND code IN
            (SELECT code FROM free_code WHERE app = ?1 AND attribute = ?2 LIMIT ?3)";
        if execute(sql, free, [app, attribute, FREE_VALUES])? == 0 {
            let forget = "DELETE FROM dictionary WHERE app = ?1 AND attribute = ?2";
            execute(sql, forget, [app, attribute])?;
        }
        return Ok(true);
    }
    Ok(false)
}
