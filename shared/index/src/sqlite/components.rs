//! Running programs: a table of JSON.

use std::time::Duration;

use async_trait::async_trait;
use push_model::{
    components::{Component, MAX_COMPONENTS},
    time::UnixMillis,
};
use push_sqlite::StoreError;
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, params};

use super::SqliteIndex;
use crate::{Components, components::decode};

#[async_trait]
impl Components for SqliteIndex {
    async fn report_component(
        &self,
        component: &Component,
        life: Duration,
    ) -> Result<bool, IndexError> {
        let Some(record) = component.clone().encode() else { return Ok(false) };
        let (namespace, id, now) = (self.namespace(), component.id.clone(), UnixMillis::now());
        let report = move |sql: &Connection| {
            let ended = "DELETE FROM component WHERE namespace = ?1 AND ends_at <= ?2";
            execute(sql, ended, params![&*namespace, time(now)])?;
            let write = "INSERT OR REPLACE INTO component (namespace, id, ends_at, record)
                SELECT ?1, ?2, ?3, ?4 WHERE ?5 >
                    (SELECT count(*) FROM component WHERE namespace = ?1 AND id <> ?2)";
            let most = i64::try_from(MAX_COMPONENTS).unwrap_or(i64::MAX);
            let with = params![&*namespace, id, time(now.plus(life)), record, most];
            Ok(execute(sql, write, with)? > 0)
        };
        Ok(self.database.write(report).await?)
    }

    async fn components(&self) -> Result<Vec<Component>, IndexError> {
        let (namespace, now) = (self.namespace(), UnixMillis::now());
        let list = move |sql: &Connection| -> Result<Vec<Component>, StoreError> {
            let list = "SELECT record FROM component WHERE namespace = ?1 AND ends_at > ?2";
            let mut statement = sql.prepare_cached(list)?;
            let rows = statement.query_map(params![&*namespace, time(now)], |row| row.get(0))?;
            let records = rows.collect::<Result<Vec<String>, _>>()?;
            Ok(decode(records.iter().map(String::as_str)))
        };
        Ok(self.database.read(list).await?)
    }

    async fn remove_component(&self, id: &str) -> Result<(), IndexError> {
        let (namespace, id) = (self.namespace(), id.to_owned());
        let remove = move |sql: &Connection| {
            execute(
                sql,
                "DELETE FROM component WHERE namespace = ?1 AND id = ?2",
                [&*namespace, &*id],
            )
        };
        Ok(self.database.write(remove).await.map(drop)?)
    }
}

fn time(UnixMillis(time): UnixMillis) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}
