//! Apps that come from another store: an arrival is a field of the hash of apps, so that it and the
//! record take each other's place in one step.

use async_trait::async_trait;
use push_model::{
    app::{App, AppKey},
    ids::AppId,
    slots::SlotRange,
    transfer::{Arrival, Registration},
};
use push_store::{IndexError, redis::connection::reply};

use super::{
    RedisIndex,
    apps::{REMOVED, write, wrong_generation},
};
use crate::{Put, PutRefused, Scanned, Transfer};

/// Precedes an app id in the field of its arrival.
const ARRIVAL: &str = "@+";

impl RedisIndex {
    /// A field of the hash of apps.
    async fn app_field(&self, field: &str) -> Result<Option<String>, IndexError> {
        let mut get = redis::cmd("HGET");
        get.arg(self.keys.apps()).arg(field);
        match self.quick.read(&get).await? {
            redis::Value::Nil => Ok(None),
            text => reply::text(text).map(Some),
        }
    }
}

fn json(arrival: &Arrival) -> Result<String, IndexError> {
    serde_json::to_string(arrival).map_err(|error| IndexError::Corrupt(error.to_string()))
}

#[async_trait]
impl Transfer for RedisIndex {
    async fn list_registrations(
        &self,
        app: &AppKey,
        range: SlotRange,
        limit: usize,
    ) -> Result<Scanned<Registration>, IndexError> {
        self.registrations_in_range(app, range, limit).await
    }

    async fn put_registrations(
        &self,
        app: &AppKey,
        devices: &[Registration],
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        let registered = devices.iter().map(|known| (known.device.clone().into(), known.stamp));
        self.register_many(app, &registered.collect::<Vec<_>>()).await
    }

    async fn removed_apps(&self, app: &AppId) -> Result<u64, IndexError> {
        let count = self.app_field(&format!("{REMOVED}{app}")).await?;
        count.map_or(Ok(0), |count| count.parse().map_err(|_| wrong_generation()))
    }

    async fn arrival(&self, app: &AppId) -> Result<Option<Arrival>, IndexError> {
        let stored = self.app_field(&format!("{ARRIVAL}{app}")).await?;
        let wrong = |error| IndexError::Corrupt(format!("an arrival: {error}"));
        stored.map(|json| serde_json::from_str(&json).map_err(wrong)).transpose()
    }

    async fn begin_arrival(&self, app: &AppId, arrival: &Arrival) -> Result<bool, IndexError> {
        let mut begin = self.scripts.begin_arrival.call(&[&self.keys.apps()]);
        begin.arg(app.as_str()).arg(arrival.created_at.0).arg(arrival.generation);
        Ok(reply::number(begin.arg(json(arrival)?).run(&self.quick).await?)? == Some(1))
    }

    async fn save_arrival(&self, app: &AppId, arrival: &Arrival) -> Result<bool, IndexError> {
        let mut save = self.scripts.save_arrival.call(&[&self.keys.apps()]);
        save.arg(app.as_str()).arg(arrival.created_at.0).arg(&*arrival.attempt);
        Ok(reply::number(save.arg(json(arrival)?).run(&self.quick).await?)? == Some(1))
    }

    async fn finish_arrival(&self, app: &App, attempt: &str) -> Result<bool, IndexError> {
        let mut finish = self.scripts.finish_arrival.call(&[&self.keys.apps()]);
        finish.arg(app.app_id.as_str()).arg(app.created_at.0).arg(app.generation).arg(attempt);
        Ok(reply::number(finish.arg(write(app)?).run(&self.quick).await?)? == Some(1))
    }
}
