//! Apps, stored as JSON records.

use async_trait::async_trait;
use push_model::{
    app::{App, AppKey},
    ids::AppId,
};
use push_sqlite::StoreError;
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteIndex;
use crate::Apps;

/// Rows of a removed app to delete in one transaction.
const REMOVE_STEP: i64 = 5000;

pub(super) fn write(app: &App) -> Result<String, StoreError> {
    serde_json::to_string(app).map_err(|error| StoreError::Unreadable(format!("an app: {error}")))
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

fn read(id: &str, json: &str) -> Result<App, StoreError> {
    let unreadable = |error| StoreError::Unreadable(format!("the record of the app {id}: {error}"));
    serde_json::from_str(json).map_err(unreadable)
}

/// Deletes some rows of a removed app. False if no removed app is left.
fn delete_some(sql: &Connection) -> Result<bool, StoreError> {
    let removed: Option<i64> = sql
        .prepare_cached("SELECT id FROM app WHERE namespace IS NULL LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(app) = removed else { return Ok(false) };
    let mut deleted = 0;
    for statement in [
        "DELETE FROM device WHERE app = ?1 AND slot IN
            (SELECT slot FROM device WHERE app = ?1 ORDER BY slot LIMIT ?2)",
        "DELETE FROM free_slot WHERE app = ?1 AND slot IN
            (SELECT slot FROM free_slot WHERE app = ?1 ORDER BY slot LIMIT ?2)",
        "DELETE FROM secret_use WHERE app = ?1 AND name IN
            (SELECT name FROM secret_use WHERE app = ?1 ORDER BY name LIMIT ?2)",
        "DELETE FROM app_usage WHERE app = ?1 AND hour IN
            (SELECT hour FROM app_usage WHERE app = ?1 ORDER BY hour LIMIT ?2)",
        "DELETE FROM removed_device WHERE row IN
            (SELECT row FROM removed_device WHERE app = ?1 LIMIT ?2)",
        "DELETE FROM gone_report WHERE app = ?1 AND part IN
            (SELECT part FROM gone_report WHERE app = ?1 LIMIT ?2)",
        "DELETE FROM word WHERE app = ?1 AND (attribute, code) IN
            (SELECT attribute, code FROM word WHERE app = ?1 ORDER BY attribute, code LIMIT ?2)",
        "DELETE FROM free_code WHERE app = ?1 AND (attribute, code) IN
            (SELECT attribute, code FROM free_code WHERE app = ?1 ORDER BY attribute, code LIMIT ?2)",
    ] {
        deleted += execute(sql, statement, [app, REMOVE_STEP])?;
    }
    if deleted == 0 {
        execute(sql, "DELETE FROM removals_stopped WHERE app = ?1", [app])?;
        execute(sql, "DELETE FROM dictionary WHERE app = ?1", [app])?;
        execute(sql, "DELETE FROM app WHERE id = ?1", [app])?;
    }
    Ok(true)
}

#[async_trait]
impl Apps for SqliteIndex {
    async fn create_app(&self, app: &App) -> Result<bool, IndexError> {
        let (namespace, mut app) = (self.namespace(), app.clone());
        let create = "INSERT INTO app (namespace, name, generation, record) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (namespace, name) DO UPDATE SET record = excluded.record
            WHERE record IS NULL AND arrival IS NULL";
        let create = move |sql: &Connection| {
            app.generation = generation(sql, &namespace, &app.app_id)?;
            let number = app.generation.cast_signed();
            let with = params![namespace, app.app_id.as_str(), number, write(&app)?];
            execute(sql, create, with)
        };
        Ok(self.database.write(create).await? > 0)
    }

    async fn update_app(&self, app: &App) -> Result<bool, IndexError> {
        let mut changed = app.clone();
        changed.revision = app.revision.saturating_add(1);
        let (namespace, name, record) = (self.namespace(), app.app_id.clone(), write(&changed)?);
        let (number, revision) = (app.generation.cast_signed(), app.revision.cast_signed());
        let update = "UPDATE app SET record = ?4
            WHERE namespace = ?1 AND name = ?2 AND generation = ?3 AND record IS NOT NULL
                AND coalesce(record ->> '$.revision', 0) = ?5";
        let update = move |sql: &Connection| {
            execute(sql, update, params![namespace, name.as_str(), number, record, revision])
        };
        Ok(self.database.write(update).await? > 0)
    }

    async fn app(&self, app: &AppId) -> Result<Option<App>, IndexError> {
        let (namespace, name) = (self.namespace(), app.clone());
        let find = move |sql: &Connection| {
            let json: Option<String> = sql
                .prepare_cached(
                    "SELECT record FROM app
                    WHERE namespace = ?1 AND name = ?2 AND record IS NOT NULL",
                )?
                .query_row([&*namespace, name.as_str()], |row| row.get(0))
                .optional()?;
            json.as_deref().map(|json| read(name.as_str(), json)).transpose()
        };
        Ok(self.database.read(find).await?)
    }

    async fn apps(&self) -> Result<Vec<App>, IndexError> {
        let namespace = self.namespace();
        let list = move |sql: &Connection| {
            let mut statement = sql.prepare_cached(
                "SELECT name, record FROM app WHERE namespace = ?1 AND record IS NOT NULL ORDER BY name",
            )?;
            let mut rows = statement.query([&*namespace])?;
            let mut apps = Vec::new();
            while let Some(row) = rows.next()? {
                apps.push(read(&row.get::<_, String>(0)?, &row.get::<_, String>(1)?)?);
            }
            Ok(apps)
        };
        Ok(self.database.read(list).await?)
    }

    async fn remove_app(&self, app: &AppId) -> Result<bool, IndexError> {
        let (namespace, name) = (self.namespace(), app.clone());
        // After this step the app and its devices are not found any more, registrations for it are
        // refused, and an app that is created with this id has no devices.
        let remove = "UPDATE app SET namespace = NULL, record = NULL
            WHERE namespace = ?1 AND name = ?2 AND record IS NOT NULL";
        let count = "INSERT INTO removed_app (namespace, name, count) VALUES (?1, ?2, 1)
            ON CONFLICT (namespace, name) DO UPDATE SET count = count + 1";
        let remove = move |sql: &Connection| {
            let removed = execute(sql, remove, [&*namespace, name.as_str()])?;
            if removed > 0 {
                execute(sql, count, [&*namespace, name.as_str()])?;
            }
            Ok(removed)
        };
        let count = self.database.write(remove).await?;
        // This also finishes a removal that was interrupted.
        while self.database.write(delete_some).await? {}
        Ok(count > 0)
    }
}
