//! The use of apps' quotas of messages: one hash an app, a field for each hour.

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    time::UnixMillis,
    usage::{BadUsage, UsageCounts, UsageHour},
};
use push_store::{IndexError, redis::connection::reply};
use redis::Value;

use super::RedisIndex;
use crate::MessageUsage;

#[async_trait]
impl MessageUsage for RedisIndex {
    async fn add_usage(
        &self,
        app: &AppKey,
        more: &[(UsageHour, UsageCounts)],
        now: UnixMillis,
    ) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError> {
        let keys = [&*self.keys.usage(app), &*self.keys.removed(app)];
        let mut add = self.scripts.add_usage.call(&keys);
        add.arg(now.0);
        for (hour, UsageCounts { accepted, closed, waits_until, kept_until }) in more {
            add.arg(hour.to_string()).arg(accepted).arg(closed);
            add.arg(waits_until.0).arg(kept_until.0);
        }
        read(add.run(&self.quick).await?)
    }

    async fn usage(&self, app: &AppKey) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError> {
        let mut get = redis::cmd("HGETALL");
        get.arg(self.keys.usage(app));
        read(self.quick.read(&get).await?)
    }
}

fn read(answer: Value) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError> {
    let read = |(hour, counts): (String, String)| Ok((hour.parse()?, counts.parse()?));
    let hours: Result<_, BadUsage> = reply::fields(answer)?.into_iter().map(read).collect();
    hours.map_err(|bad| IndexError::Corrupt(bad.to_string()))
}
