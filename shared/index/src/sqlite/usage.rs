//! The use of apps' quotas of messages: a row for each hour.

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    time::UnixMillis,
    usage::{BadUsage, UsageCounts, UsageHour},
};
use push_sqlite::StoreError;
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, params};

use super::{SqliteIndex, apps::app_row};
use crate::MessageUsage;

#[async_trait]
impl MessageUsage for SqliteIndex {
    async fn add_usage(
        &self,
        app: &AppKey,
        more: &[(UsageHour, UsageCounts)],
        now: UnixMillis,
    ) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError> {
        let (namespace, app, more) = (self.namespace(), app.clone(), more.to_vec());
        let add = move |sql: &Connection| {
            let Some(app) = app_row(sql, &namespace, &app)? else { return Ok(Vec::new()) };
            let mut hours = read(sql, app)?;
            for (hour, counts) in more {
                let at = match hours.iter().position(|(known, _)| *known == hour) {
                    Some(at) => at,
                    None => {
                        hours.push((hour, UsageCounts::default()));
                        hours.len() - 1
                    }
                };
                hours[at].1.add(&counts);
                let save = "INSERT OR REPLACE INTO app_usage (app, hour, counts)
                    VALUES (?1, ?2, ?3)";
                execute(sql, save, params![app, hour.to_string(), hours[at].1.to_string()])?;
            }
            for (hour, _) in hours.extract_if(.., |(_, counts)| counts.is_over(now)) {
                let drop = "DELETE FROM app_usage WHERE app = ?1 AND hour = ?2";
                execute(sql, drop, params![app, hour.to_string()])?;
            }
            Ok(hours)
        };
        Ok(self.database.write(add).await?)
    }

    async fn usage(&self, app: &AppKey) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError> {
        let (namespace, app) = (self.namespace(), app.clone());
        let find = move |sql: &Connection| match app_row(sql, &namespace, &app)? {
            Some(app) => read(sql, app),
            None => Ok(Vec::new()),
        };
        Ok(self.database.read(find).await?)
    }
}

fn read(sql: &Connection, app: i64) -> Result<Vec<(UsageHour, UsageCounts)>, StoreError> {
    let bad = |bad: BadUsage| StoreError::Unreadable(bad.to_string());
    let mut statement = sql.prepare_cached("SELECT hour, counts FROM app_usage WHERE app = ?1")?;
    let mut rows = statement.query([app])?;
    let mut hours = Vec::new();
    while let Some(row) = rows.next()? {
        let (hour, counts): (String, String) = (row.get(0)?, row.get(1)?);
        hours.push((hour.parse().map_err(bad)?, counts.parse().map_err(bad)?));
    }
    Ok(hours)
}
