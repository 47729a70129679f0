//! Paces: one number in the app's row, so that it is removed with the app.

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    pace::{Acquire, Grant, TheoreticalArrival},
};
use push_sqlite::StoreError;
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, OptionalExtension, params};

use super::{SqliteIndex, apps::app_row};
use crate::Pacing;

fn acquire_pace(
    sql: &Connection,
    namespace: &str,
    app: &AppKey,
    request: &Acquire,
) -> Result<Grant, StoreError> {
    let app = app_row(sql, namespace, app)?;
    let stored: Option<i64> = sql
        .prepare_cached("SELECT paid_until FROM app WHERE id = ?1")?
        .query_row([app], |row| row.get(0))
        .optional()?;
    let arrival = TheoreticalArrival(stored.unwrap_or_default().cast_unsigned());
    let (arrival, grant) = arrival.acquire(request);
    if grant.granted {
        let keep = "UPDATE app SET paid_until = ?2 WHERE id = ?1";
        execute(sql, keep, params![app, arrival.0.cast_signed()])?;
    }
    Ok(grant)
}

#[async_trait]
impl Pacing for SqliteIndex {
    async fn acquire_pace(&self, app: &AppKey, request: &Acquire) -> Result<Grant, IndexError> {
        let (namespace, app, request) = (self.namespace(), app.clone(), *request);
        let write = move |sql: &Connection| acquire_pace(sql, &namespace, &app, &request);
        Ok(self.database.write(write).await?)
    }
}
