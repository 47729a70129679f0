//! Keys of the admin API: a row for each.

use async_trait::async_trait;
use push_model::{
    admin_key::{AdminKey, KeyDigest, MAX_ADMIN_KEYS, UsedAdminKey},
    ids::SecretName,
    time::UnixMillis,
};
use push_sqlite::StoreError;
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteIndex;
use crate::{AdminKeyAdded, AdminKeys};

#[async_trait]
impl AdminKeys for SqliteIndex {
    async fn add_admin_key(&self, key: &AdminKey) -> Result<AdminKeyAdded, IndexError> {
        let (namespace, key) = (self.namespace(), key.clone());
        let record = serde_json::to_string(&key)
            .map_err(|error| IndexError::Corrupt(format!("an admin key: {error}")))?;
        let add = move |sql: &Connection| -> Result<AdminKeyAdded, StoreError> {
            let count =
                "SELECT count(*), coalesce(sum(name = ?2), 0) FROM admin_key WHERE namespace = ?1";
            let with = [&*namespace, key.name.as_str()];
            let (all, same): (i64, i64) =
                sql.prepare_cached(count)?.query_row(with, |row| Ok((row.get(0)?, row.get(1)?)))?;
            if same > 0 {
                return Ok(AdminKeyAdded::NameTaken);
            }
            if usize::try_from(all).unwrap_or_default() >= MAX_ADMIN_KEYS {
                return Ok(AdminKeyAdded::TooMany);
            }
            let insert = "INSERT INTO admin_key (namespace, name, digest, record, used_at)
                VALUES (?1, ?2, ?3, ?4, 0)";
            let digest = key.sha256.bytes().as_slice();
            execute(sql, insert, params![&*namespace, key.name.as_str(), digest, record])?;
            Ok(AdminKeyAdded::Added)
        };
        Ok(self.database.write(add).await?)
    }

    async fn admin_key(&self, digest: &KeyDigest) -> Result<Option<AdminKey>, IndexError> {
        let (namespace, digest) = (self.namespace(), *digest);
        let find = move |sql: &Connection| {
            let find = "SELECT record FROM admin_key WHERE namespace = ?1 AND digest = ?2";
            let with = params![&*namespace, digest.bytes().as_slice()];
            let record: Option<String> =
                sql.prepare_cached(find)?.query_row(with, |row| row.get(0)).optional()?;
            let unreadable = |error| StoreError::Unreadable(format!("an admin key: {error}"));
            record.map(|record| serde_json::from_str(&record).map_err(unreadable)).transpose()
        };
        Ok(self.database.read(find).await?)
    }

    async fn admin_keys(&self) -> Result<Vec<UsedAdminKey>, IndexError> {
        let namespace = self.namespace();
        let list = move |sql: &Connection| -> Result<Vec<UsedAdminKey>, StoreError> {
            let list = "SELECT record, used_at FROM admin_key WHERE namespace = ?1 ORDER BY name";
            let mut statement = sql.prepare_cached(list)?;
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let rows = statement.query_map([&*namespace], row)?;
            let rows = rows.collect::<Result<Vec<(String, i64)>, _>>()?.into_iter();
            let key = |(record, used_at): (String, i64)| {
                let last_used_at = (used_at > 0).then(|| UnixMillis(used_at.cast_unsigned()));
                Some(UsedAdminKey { key: serde_json::from_str(&record).ok()?, last_used_at })
            };
            Ok(rows.filter_map(key).collect())
        };
        Ok(self.database.read(list).await?)
    }

    async fn remove_admin_key(&self, name: &SecretName) -> Result<bool, IndexError> {
        let (namespace, name) = (self.namespace(), name.clone());
        let remove = move |sql: &Connection| {
            let remove = "DELETE FROM admin_key WHERE namespace = ?1 AND name = ?2";
            execute(sql, remove, [&*namespace, name.as_str()])
        };
        Ok(self.database.write(remove).await? > 0)
    }

    async fn note_admin_key_use(
        &self,
        key: &AdminKey,
        used_at: UnixMillis,
    ) -> Result<(), IndexError> {
        let (namespace, digest) = (self.namespace(), key.sha256);
        let note = move |sql: &Connection| {
            let note = "UPDATE admin_key SET used_at = max(used_at, ?3)
                WHERE namespace = ?1 AND digest = ?2";
            let used_at = used_at.0.cast_signed();
            execute(sql, note, params![&*namespace, digest.bytes().as_slice(), used_at])
        };
        Ok(self.database.write(note).await.map(drop)?)
    }
}
