//! Paces: one number in the app's row, so that it goes with the app.

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    pace::{PaidUntil, Take, Taken},
};
use push_sqlite::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    SqliteIndex,
    schema::{app_row, execute},
};
use crate::{IndexError, Pacing};

fn take_pace(
    sql: &Connection,
    namespace: &str,
    app: &AppKey,
    take: &Take,
) -> Result<Taken, StoreError> {
    let app = app_row(sql, namespace, app)?;
    let paid: Option<i64> = sql
        .prepare_cached("SELECT paid_until FROM app WHERE id = ?1")?
        .query_row([app], |row| row.get(0))
        .optional()?;
    let paid = PaidUntil(paid.unwrap_or_default().cast_unsigned());
    let (paid, taken) = paid.take(take);
    if taken.granted {
        let keep = "UPDATE app SET paid_until = ?2 WHERE id = ?1";
        execute(sql, keep, params![app, paid.0.cast_signed()])?;
    }
    Ok(taken)
}

#[async_trait]
impl Pacing for SqliteIndex {
    async fn take_pace(&self, app: &AppKey, take: &Take) -> Result<Taken, IndexError> {
        let (namespace, app, take) = (self.namespace(), app.clone(), *take);
        let write = move |sql: &Connection| take_pace(sql, &namespace, &app, &take);
        Ok(self.database.write(write).await?)
    }
}
