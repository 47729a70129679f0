//! Last uses of secrets: one small hash an app.

use std::collections::BTreeMap;

use async_trait::async_trait;
use push_model::{app::AppKey, time::UnixMillis};
use push_store::{IndexError, redis::connection::reply};

use super::RedisIndex;
use crate::{SecretUses, apps::forget_uses_before};

#[async_trait]
impl SecretUses for RedisIndex {
    async fn save_secret_uses(
        &self,
        app: &AppKey,
        uses: &[(&str, Option<UnixMillis>)],
    ) -> Result<(), IndexError> {
        let keys = [&*self.keys.secret_uses(app), &*self.keys.removed(app)];
        let mut save = self.scripts.save_secret_uses.call(&keys);
        save.arg(forget_uses_before(uses).0);
        for (name, used_at) in uses {
            save.arg(*name).arg(used_at.unwrap_or_default().0);
        }
        save.run(&self.quick).await.map(drop)
    }

    async fn secret_uses(&self, app: &AppKey) -> Result<BTreeMap<String, UnixMillis>, IndexError> {
        let mut read = redis::cmd("HGETALL");
        read.arg(self.keys.secret_uses(app));
        let fields = reply::fields(self.quick.read(&read).await?)?.into_iter();
        let time = |(name, time): (String, String)| Some((name, UnixMillis(time.parse().ok()?)));
        Ok(fields.filter_map(time).collect())
    }
}
