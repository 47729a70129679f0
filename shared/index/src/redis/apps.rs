//! Apps: one hash of JSON. Apps are few, read rarely (every program caches them) and listed as a
//! whole.
//!
//! Beside the record of an app the hash counts, for ever, how many apps of its name were removed:
//! that number is the generation of the next app, and part of every other key of it
//! ([`push_store::redis::keys`]). An app that is on its way here from another store has a field of its own
//! ([`super::transfer`]), which begins with the same character, so that builds that do not know it
//! leave it out of the list of apps. The shards and dictionaries of a removed app refuse registrations for
//! [`REMOVED_APP_REFUSES`], because other programs may still have its record in their caches.

use async_trait::async_trait;
use push_store::{
    IndexError,
    redis::{
        connection::reply,
        keys::{DictionaryKeys, column_name},
    },
};

use push_model::{
    app::{App, AppKey},
    attributes::Attribute,
    filter::Column,
    ids::AppId,
    secret::Secret,
    time::UnixMillis,
};

use super::{RedisIndex, layout::SHARDS};
use crate::{Apps, REMOVED_APP_REFUSES};

/// The most chunks, and the most buckets, that one step of a removal may delete from a shard.
const REMOVE_STEP: usize = 500;

/// Precedes an app id in the fields that are no records. No app id begins with it. With the id alone
/// behind it, the field counts the removed apps of this id.
pub(super) const REMOVED: char = '@';

/// The most tries of a creation while removals change the generation.
const CREATE_TRIES: usize = 3;

/// The most times that a removal reads an app that others change.
const CHANGE_TRIES: usize = 10;

pub(super) fn write(app: &App) -> Result<String, IndexError> {
    serde_json::to_string(app).map_err(|error| IndexError::Corrupt(error.to_string()))
}

/// The record as it is stored after a change.
fn next_revision(app: &App) -> App {
    let mut changed = app.clone();
    changed.revision = app.revision.saturating_add(1);
    changed
}

fn read(id: &str, json: &[u8]) -> Result<App, IndexError> {
    let unreadable = |error| IndexError::Corrupt(format!("the record of the app {id}: {error}"));
    serde_json::from_slice(json).map_err(unreadable)
}

pub(super) fn wrong_generation() -> IndexError {
    IndexError::Corrupt("a count of removed apps".to_owned())
}

impl RedisIndex {
    /// Removes the devices of one shard, step by step. A step that failed can be done again.
    async fn remove_shard(
        &self,
        app: &AppKey,
        shard: u32,
        others: &[Column],
    ) -> Result<(), IndexError> {
        let keys = self.keys.shard(app, shard);
        loop {
            let mut step = self.scripts.remove_shard.call(&[keys.base()]);
            step.arg(REMOVE_STEP).arg(REMOVED_APP_REFUSES.as_secs());
            for column in others.iter().filter(|column| **column != Column::Topic) {
                step.arg(column_name(*column));
            }
            if reply::number(step.run(&self.bulk).await?)? == Some(1) {
                return Ok(());
            }
        }
    }

    /// Disables the app that is to be removed. None if there is none.
    async fn disable_for_removal(&self, app: &AppId) -> Result<Option<AppKey>, IndexError> {
        let mut first = None;
        let mut get = redis::cmd("HMGET");
        get.arg(self.keys.apps()).arg(app.as_str()).arg(format!("{REMOVED}{app}"));
        for _ in 0..CHANGE_TRIES {
            let mut fields = reply::list(self.quick.read(&get).await?)?.into_iter();
            let stored = reply::bytes(fields.next().unwrap_or_default())?;
            let Some(stored) = stored else { return Ok(None) };
            let record = read(app.as_str(), &stored);
            let key = match &record {
                Ok(record) => AppKey::from(record),
                Err(_) => {
                    let removed = reply::number(fields.next().unwrap_or_default())?.unwrap_or(0);
                    AppKey { id: app.clone(), generation: removed }
                }
            };
            if *first.get_or_insert_with(|| key.clone()) != key {
                // Another removal finished meanwhile, and this is the next app of the name.
                return Ok(None);
            }
            let is_disabled = match record {
                Ok(mut record) => {
                    record.disabled = true;
                    self.update_app(&record).await?
                }
                Err(_) => self.replace_unreadable(&key, &stored).await?,
            };
            if is_disabled {
                return Ok(Some(key));
            }
        }
        Err(IndexError::Refused("the app is being changed at this moment".into()))
    }

    /// Puts a disabled app with a secret that nothing knows in place of a record that cannot be read.
    /// False if that record has changed.
    async fn replace_unreadable(&self, key: &AppKey, stored: &[u8]) -> Result<bool, IndexError> {
        let mut app = App::new(key.id.clone(), &Secret::generate(), UnixMillis(0));
        (app.generation, app.disabled) = (key.generation, true);
        let mut replace = self.scripts.replace_app.call(&[&self.keys.apps()]);
        replace.arg(key.id.as_str()).arg(key.generation).arg(stored).arg(write(&app)?);
        Ok(reply::number(replace.run(&self.quick).await?)? == Some(1))
    }

    /// Makes the dictionaries refuse new values.
    async fn close_dictionaries(&self, app: &AppKey) -> Result<(), IndexError> {
        let mut close = redis::cmd("SET");
        close.arg(self.keys.removed(app)).arg(1).arg("EX").arg(REMOVED_APP_REFUSES.as_secs());
        self.quick.command(&close).await?;
        Ok(())
    }

    /// Lets the dictionaries expire, but not immediately: a scan that has read a device may still look
    /// up the values of its codes.
    async fn expire_dictionaries(&self, app: &AppKey, others: &[Column]) -> Result<(), IndexError> {
        let columns = Attribute::ALL.map(Column::BuiltIn).into_iter().chain(others.iter().copied());
        let dictionaries: Vec<_> =
            columns.map(|column| self.keys.dictionary(app, column)).collect();
        let state = self.keys.dictionary_state(app);
        for key in dictionaries.iter().flat_map(DictionaryKeys::all).chain([&*state]) {
            let mut expire = redis::cmd("EXPIRE");
            expire.arg(key).arg(REMOVED_APP_REFUSES.as_secs());
            self.quick.command(&expire).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Apps for RedisIndex {
    async fn create_app(&self, app: &App) -> Result<bool, IndexError> {
        let mut app = app.clone();
        app.generation = 0;
        for _ in 0..CREATE_TRIES {
            let mut create = self.scripts.create_app.call(&[&self.keys.apps()]);
            create.arg(app.app_id.as_str()).arg(app.generation).arg(write(&app)?);
            app.generation = match reply::text(create.run(&self.quick).await?)?.as_str() {
                "created" => return Ok(true),
                "exists" => return Ok(false),
                generation => generation.parse().map_err(|_| wrong_generation())?,
            };
        }
        Err(IndexError::Refused("apps of this name come and go at this moment".into()))
    }

    async fn update_app(&self, app: &App) -> Result<bool, IndexError> {
        let mut update = self.scripts.update_app.call(&[&self.keys.apps()]);
        let changed = next_revision(app);
        update.arg(app.app_id.as_str()).arg(app.generation).arg(write(&changed)?);
        update.arg(app.revision);
        Ok(reply::number(update.run(&self.quick).await?)? == Some(1))
    }

    async fn app(&self, app: &AppId) -> Result<Option<App>, IndexError> {
        let mut get = redis::cmd("HGET");
        get.arg(self.keys.apps()).arg(app.as_str());
        let json = reply::bytes(self.quick.read(&get).await?)?;
        json.map(|json| read(app.as_str(), &json)).transpose()
    }

    async fn apps(&self) -> Result<Vec<App>, IndexError> {
        let mut get = redis::cmd("HGETALL");
        get.arg(self.keys.apps());
        let fields = reply::fields(self.quick.read(&get).await?)?;
        let records = fields.iter().filter(|(field, _)| !field.starts_with(REMOVED));
        let mut apps: Vec<App> =
            records.map(|(id, json)| read(id, json.as_bytes())).collect::<Result<_, _>>()?;
        apps.sort_unstable_by(|a, b| a.app_id.cmp(&b.app_id));
        Ok(apps)
    }

    async fn remove_app(&self, app: &AppId) -> Result<bool, IndexError> {
        let Some(key) = self.disable_for_removal(app).await? else { return Ok(false) };
        self.close_dictionaries(&key).await?;
        // After the mark that it is removed, since then nothing is saved any more.
        let mut forget = redis::cmd("DEL");
        forget.arg(self.keys.secret_uses(&key)).arg(self.keys.usage(&key));
        forget.arg(self.keys.removed_devices(&key)).arg(self.keys.gone_reports(&key));
        self.quick.command(&forget).await?;
        // No column is added any more.
        let others = self.other_columns(&key).await?;
        for shard in 0..SHARDS {
            self.remove_shard(&key, shard, &others).await?;
        }
        // After the devices: what a registration adds before it is refused there is forgotten here.
        self.remove_users(&key).await?;
        self.expire_dictionaries(&key, &others).await?;
        // Again, because removing the shards may have taken so long that the first mark expired.
        self.close_dictionaries(&key).await?;
        let mut remove = self.scripts.remove_app.call(&[&self.keys.apps()]);
        remove.arg(app.as_str()).arg(key.generation).arg(key.generation.saturating_add(1));
        Ok(reply::number(remove.run(&self.quick).await?)? == Some(1))
    }
}
