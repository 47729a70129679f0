//! Running programs: one hash, which a script keeps free of records that have ended.

use std::time::Duration;

use async_trait::async_trait;
use push_model::components::{Component, MAX_COMPONENTS};
use push_store::{IndexError, redis::connection::reply};

use super::RedisIndex;
use crate::{Components, components::decode};

#[async_trait]
impl Components for RedisIndex {
    async fn report_component(
        &self,
        component: &Component,
        life: Duration,
    ) -> Result<bool, IndexError> {
        let Some(record) = component.clone().encode() else { return Ok(false) };
        let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        let mut report = self.scripts.report_component.call(&[&self.keys.components()]);
        report.arg(&component.id).arg(record).arg(life).arg(MAX_COMPONENTS);
        Ok(reply::number(report.run(&self.quick).await?)? == Some(1))
    }

    async fn components(&self) -> Result<Vec<Component>, IndexError> {
        let list = self.scripts.list_components.call(&[&self.keys.components()]);
        let records = reply::list(list.read(&self.bulk).await?)?.into_iter();
        let records: Vec<String> = records.filter_map(|record| reply::text(record).ok()).collect();
        Ok(decode(records.iter().map(String::as_str)))
    }

    async fn remove_component(&self, id: &str) -> Result<(), IndexError> {
        let mut remove = redis::cmd("HDEL");
        remove.arg(self.keys.components()).arg(id);
        self.quick.command(&remove).await?;
        Ok(())
    }
}
