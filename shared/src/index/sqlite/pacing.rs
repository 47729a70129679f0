//! Paces: one number in the app's row, so that it goes with the app.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};

use super::{SqliteIndex, schema::execute};
use crate::{
    ids::AppId,
    index::{IndexError, Pacing},
    pace::{PaidUntil, Take, Taken},
    sqlite::StoreError,
};

fn take_pace(
    sql: &Connection,
    namespace: &str,
    app: &AppId,
    take: &Take,
) -> Result<Taken, StoreError> {
    let name = [namespace, app.as_str()];
    let paid: Option<i64> = sql
        .prepare_cached("SELECT paid_until FROM app WHERE namespace = ?1 AND name = ?2")?
        .query_row(name, |row| row.get(0))
        .optional()?;
    let paid = PaidUntil(paid.unwrap_or_default().cast_unsigned());
    let (paid, taken) = paid.take(take);
    if taken.granted {
        let keep = "UPDATE app SET paid_until = ?3 WHERE namespace = ?1 AND name = ?2";
        execute(sql, keep, params![namespace, app.as_str(), paid.0.cast_signed()])?;
    }
    Ok(taken)
}

#[async_trait]
impl Pacing for SqliteIndex {
    async fn take_pace(&self, app: &AppId, take: &Take) -> Result<Taken, IndexError> {
        let (namespace, app, take) = (self.namespace(), app.clone(), *take);
        let write = move |sql: &Connection| take_pace(sql, &namespace, &app, &take);
        Ok(self.database.write(write).await?)
    }
}
