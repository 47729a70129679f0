//! Keys of the admin API: one hash. The name of a key has its digest; `@` and the digest has the key as JSON; `+`
//! and the name has the time of its last use.

use std::collections::HashMap;

use async_trait::async_trait;
use push_model::{
    admin_key::{AdminKey, KeyDigest, MAX_ADMIN_KEYS, UsedAdminKey},
    ids::SecretName,
    time::UnixMillis,
};
use push_store::{IndexError, redis::connection::reply};

use super::RedisIndex;
use crate::{AdminKeyAdded, AdminKeys};

const RECORD: &str = "@";
const USE: &str = "+";

#[async_trait]
impl AdminKeys for RedisIndex {
    async fn add_admin_key(&self, key: &AdminKey) -> Result<AdminKeyAdded, IndexError> {
        let record = serde_json::to_string(key)
            .map_err(|error| IndexError::Corrupt(format!("an admin key: {error}")))?;
        let mut add = self.scripts.add_admin_key.call(&[&self.keys.admin_keys()]);
        add.arg(key.name.as_str()).arg(key.sha256.to_string()).arg(record).arg(MAX_ADMIN_KEYS);
        match reply::text(add.run(&self.quick).await?)?.as_str() {
            "added" => Ok(AdminKeyAdded::Added),
            "taken" => Ok(AdminKeyAdded::NameTaken),
            _ => Ok(AdminKeyAdded::TooMany),
        }
    }

    async fn admin_key(&self, digest: &KeyDigest) -> Result<Option<AdminKey>, IndexError> {
        let mut get = redis::cmd("HGET");
        get.arg(self.keys.admin_keys()).arg(format!("{RECORD}{digest}"));
        let record = reply::bytes(self.quick.read(&get).await?)?;
        let unreadable = |error| IndexError::Corrupt(format!("an admin key: {error}"));
        record.map(|record| serde_json::from_slice(&record).map_err(unreadable)).transpose()
    }

    async fn admin_keys(&self) -> Result<Vec<UsedAdminKey>, IndexError> {
        let mut get = redis::cmd("HGETALL");
        get.arg(self.keys.admin_keys());
        let fields: HashMap<String, String> =
            reply::fields(self.quick.read(&get).await?)?.into_iter().collect();
        let records = fields.iter().filter(|(field, _)| field.starts_with(RECORD));
        let mut keys: Vec<UsedAdminKey> = records
            .filter_map(|(_, record)| serde_json::from_str::<AdminKey>(record).ok())
            .map(|key| {
                let used = fields.get(&format!("{USE}{}", key.name));
                let last_used_at = used.and_then(|used| used.parse().ok()).map(UnixMillis);
                UsedAdminKey { key, last_used_at }
            })
            .collect();
        keys.sort_unstable_by(|a, b| a.key.name.cmp(&b.key.name));
        Ok(keys)
    }

    async fn remove_admin_key(&self, name: &SecretName) -> Result<bool, IndexError> {
        let mut remove = self.scripts.remove_admin_key.call(&[&self.keys.admin_keys()]);
        remove.arg(name.as_str());
        Ok(reply::number(remove.run(&self.quick).await?)? == Some(1))
    }

    async fn note_admin_key_use(
        &self,
        key: &AdminKey,
        used_at: UnixMillis,
    ) -> Result<(), IndexError> {
        let mut note = self.scripts.use_admin_key.call(&[&self.keys.admin_keys()]);
        note.arg(key.name.as_str()).arg(key.sha256.to_string()).arg(used_at.0);
        note.run(&self.quick).await.map(drop)
    }
}
