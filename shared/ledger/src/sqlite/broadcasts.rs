//! The broadcasts that are not finished: a row for each.

use async_trait::async_trait;
use push_model::{ids::MessageId, open_broadcast::OpenBroadcast};
use push_sqlite::StoreError;
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteLedger;
use crate::{OpenBroadcasts, broadcasts::MAX_LISTED};

#[async_trait]
impl OpenBroadcasts for SqliteLedger {
    async fn list_broadcast(&self, broadcast: &OpenBroadcast) -> Result<(), IndexError> {
        let (ledger, message) = (self.ledger_id, broadcast.message_id);
        let value = broadcast.encode();
        let list = move |sql: &Connection| {
            let insert = "INSERT OR IGNORE INTO open_broadcast (ledger, message, broadcast)
                SELECT ?1, ?2, ?3
                WHERE (SELECT count(*) FROM open_broadcast WHERE ledger = ?1) < ?4";
            let most = i64::try_from(MAX_LISTED).unwrap_or(i64::MAX);
            execute(sql, insert, params![ledger, message.as_uuid().as_bytes(), value, most])
        };
        Ok(self.database.write(list).await.map(drop)?)
    }

    async fn set_devices_left(
        &self,
        message: &MessageId,
        partition: u32,
        left: u32,
    ) -> Result<(), IndexError> {
        let (ledger, message) = (self.ledger_id, *message);
        let set = move |sql: &Connection| {
            let Some(mut broadcast) = listed(sql, ledger, message)? else { return Ok(()) };
            let partition = usize::try_from(partition).unwrap_or(usize::MAX);
            let Some(of_partition) = broadcast.devices_left.get_mut(partition) else {
                return Ok(());
            };
            *of_partition = left;
            if broadcast.total_left() == 0 {
                return unlist(sql, ledger, message);
            }
            let update =
                "UPDATE open_broadcast SET broadcast = ?3 WHERE ledger = ?1 AND message = ?2";
            let value = broadcast.encode();
            execute(sql, update, params![ledger, message.as_uuid().as_bytes(), value])?;
            Ok(())
        };
        Ok(self.database.write(set).await?)
    }

    async fn unlist_broadcast(&self, message: &MessageId) -> Result<(), IndexError> {
        let (ledger, message) = (self.ledger_id, *message);
        Ok(self.database.write(move |sql| unlist(sql, ledger, message)).await?)
    }

    async fn open_broadcasts(&self) -> Result<Vec<OpenBroadcast>, IndexError> {
        let ledger = self.ledger_id;
        let read = move |sql: &Connection| -> Result<_, StoreError> {
            let select = "SELECT message, broadcast FROM open_broadcast WHERE ledger = ?1";
            let mut statement = sql.prepare_cached(select)?;
            let rows = statement.query_map([ledger], |row| {
                Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, Vec<u8>>(1)?))
            })?;
            let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
            let broadcast = |(message, value): ([u8; 16], Vec<u8>)| {
                OpenBroadcast::decode(MessageId::from_uuid(uuid::Uuid::from_bytes(message)), &value)
            };
            Ok(rows.into_iter().filter_map(broadcast).collect())
        };
        Ok(self.database.read(read).await?)
    }
}

fn listed(
    sql: &Connection,
    ledger: i64,
    message: MessageId,
) -> Result<Option<OpenBroadcast>, StoreError> {
    let select = "SELECT broadcast FROM open_broadcast WHERE ledger = ?1 AND message = ?2";
    let with = params![ledger, message.as_uuid().as_bytes()];
    let value: Option<Vec<u8>> =
        sql.prepare_cached(select)?.query_row(with, |row| row.get(0)).optional()?;
    Ok(value.and_then(|value| OpenBroadcast::decode(message, &value)))
}

fn unlist(sql: &Connection, ledger: i64, message: MessageId) -> Result<(), StoreError> {
    let delete = "DELETE FROM open_broadcast WHERE ledger = ?1 AND message = ?2";
    execute(sql, delete, params![ledger, message.as_uuid().as_bytes()])?;
    Ok(())
}
