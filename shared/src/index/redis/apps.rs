//! Apps: one hash of JSON. They are few, read rarely (every program caches them) and listed
//! whole.

use async_trait::async_trait;

use super::{RedisIndex, dictionary::KEPT_AFTER_REMOVAL, layout::SHARDS, link::index_error, reply};
use crate::{
    app::App,
    attributes::Attribute,
    ids::AppId,
    index::{Apps, IndexError},
};

/// How many chunks and buckets of a shard one step of a removal may take away.
const REMOVE_STEP: usize = 500;

fn write(app: &App) -> Result<String, IndexError> {
    serde_json::to_string(app).map_err(|error| IndexError::Corrupt(error.to_string()))
}

fn read(json: &str) -> Result<App, IndexError> {
    serde_json::from_str(json).map_err(|error| IndexError::Corrupt(format!("an app: {error}")))
}

impl RedisIndex {
    /// Removes the devices of one shard, step by step: a step that failed is simply done again.
    async fn remove_shard(&self, app: &AppId, shard: u32) -> Result<(), IndexError> {
        let keys = self.keys.shard(app, shard);
        loop {
            let mut step = self.scripts.drop.call(&[keys.base()]);
            let answer = step.arg(REMOVE_STEP).run(&self.bulk).await?;
            if reply::number(answer)? == Some(1) {
                return Ok(());
            }
        }
    }

    fn dictionary_keys(&self, app: &AppId) -> Vec<String> {
        Attribute::ALL
            .into_iter()
            .flat_map(|attribute| {
                let list = self.keys.dictionary_list(app, attribute);
                [list, self.keys.dictionary_set(app, attribute)]
            })
            .collect()
    }
}

#[async_trait]
impl Apps for RedisIndex {
    async fn create_app(&self, app: &App) -> Result<bool, IndexError> {
        let mut create = redis::cmd("HSETNX");
        create.arg(self.keys.apps()).arg(app.app_id.as_str()).arg(write(app)?);
        // Before the app exists, so that the codes it may still have outlive it.
        for key in self.dictionary_keys(&app.app_id) {
            let mut keep = redis::cmd("PERSIST");
            self.quick.command(keep.arg(key)).await.map_err(index_error)?;
        }
        let answer = self.quick.command(&create).await.map_err(index_error)?;
        Ok(reply::number(answer)? == Some(1))
    }

    async fn update_app(&self, app: &App) -> Result<bool, IndexError> {
        let mut update = self.scripts.update_app.call(&[&self.keys.apps()]);
        let answer = update.arg(app.app_id.as_str()).arg(write(app)?).run(&self.quick).await?;
        Ok(reply::number(answer)? == Some(1))
    }

    async fn app(&self, app: &AppId) -> Result<Option<App>, IndexError> {
        let mut get = redis::cmd("HGET");
        get.arg(self.keys.apps()).arg(app.as_str());
        match self.quick.read(&get).await? {
            redis::Value::Nil => Ok(None),
            json => read(&reply::text(json)?).map(Some),
        }
    }

    async fn apps(&self) -> Result<Vec<App>, IndexError> {
        let mut get = redis::cmd("HVALS");
        get.arg(self.keys.apps());
        let values = reply::list(self.quick.read(&get).await?)?;
        let mut apps: Vec<App> =
            values.into_iter().map(|json| read(&reply::text(json)?)).collect::<Result<_, _>>()?;
        apps.sort_unstable_by(|a, b| a.app_id.cmp(&b.app_id));
        Ok(apps)
    }

    async fn remove_app(&self, app: &AppId) -> Result<bool, IndexError> {
        let Some(mut record) = self.app(app).await? else { return Ok(false) };
        record.disabled = true;
        self.update_app(&record).await?;
        for shard in 0..SHARDS {
            self.remove_shard(app, shard).await?;
        }
        for key in self.dictionary_keys(app) {
            let mut forget = redis::cmd("EXPIRE");
            forget.arg(key).arg(KEPT_AFTER_REMOVAL.as_secs());
            self.quick.command(&forget).await.map_err(index_error)?;
        }
        let mut delete = redis::cmd("HDEL");
        delete.arg(self.keys.apps()).arg(app.as_str());
        let answer = self.quick.command(&delete).await.map_err(index_error)?;
        Ok(reply::number(answer)? == Some(1))
    }
}
