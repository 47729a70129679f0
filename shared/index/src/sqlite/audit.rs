//! The audit trail: a table of JSON.

use async_trait::async_trait;
use push_model::audit::AuditEvent;
use push_sqlite::StoreError;
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, params};

use super::SqliteIndex;
use crate::AuditTrail;

#[async_trait]
impl AuditTrail for SqliteIndex {
    async fn append_audit(&self, event: &AuditEvent, keep: usize) -> Result<(), IndexError> {
        let (namespace, keep) = (self.namespace(), i64::try_from(keep).unwrap_or(i64::MAX));
        let event = serde_json::to_string(event)
            .map_err(|error| IndexError::Corrupt(format!("an audit event: {error}")))?;
        let append = move |sql: &Connection| {
            let insert = "INSERT INTO audit (namespace, event) VALUES (?1, ?2)";
            execute(sql, insert, [&*namespace, &*event])?;
            let trim = "DELETE FROM audit WHERE namespace = ?1 AND row <= (
                SELECT row FROM audit WHERE namespace = ?1 ORDER BY row DESC LIMIT 1 OFFSET ?2)";
            execute(sql, trim, params![&*namespace, keep])
        };
        Ok(self.database.write(append).await.map(drop)?)
    }

    async fn audit(&self, limit: usize) -> Result<Vec<AuditEvent>, IndexError> {
        let (namespace, limit) = (self.namespace(), i64::try_from(limit).unwrap_or(i64::MAX));
        let list = move |sql: &Connection| -> Result<Vec<AuditEvent>, StoreError> {
            let list = "SELECT event FROM audit WHERE namespace = ?1 ORDER BY row DESC LIMIT ?2";
            let mut statement = sql.prepare_cached(list)?;
            let rows = statement.query_map(params![&*namespace, limit], |row| row.get(0))?;
            let events = rows.collect::<Result<Vec<String>, _>>()?;
            Ok(events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect())
        };
        Ok(self.database.read(list).await?)
    }
}
