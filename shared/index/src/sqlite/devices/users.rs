//! Finding the devices of users, by an index of the table, and the topics that devices have.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    filter::Column,
    ids::{ClientId, Topic, UserId},
    profile::MAX_USER_DEVICES,
};
use push_sqlite::StoreError;
use push_store::IndexError;
use rusqlite::{Connection, params};

use super::{dictionary::number, register};
use crate::{
    Users,
    sqlite::{SqliteIndex, apps::app_row},
};

#[async_trait]
impl Users for SqliteIndex {
    async fn user_devices(
        &self,
        app: &AppKey,
        users: &[UserId],
    ) -> Result<Vec<Vec<ClientId>>, IndexError> {
        let wanted = users.to_vec();
        let read = move |sql: &Connection, app| {
            wanted.iter().map(|user| devices_of(sql, app, user)).collect::<Result<Vec<_>, _>>()
        };
        let mut found = self.read_app(app, read).await?;
        // If the app has no row, `read` did not run.
        found.resize(users.len(), Vec::new());
        Ok(found)
    }

    async fn unknown_topics(
        &self,
        app: &AppKey,
        topics: &[Topic],
    ) -> Result<Vec<Topic>, IndexError> {
        let wanted = topics.to_vec();
        let read = move |sql: &Connection, app| {
            wanted.iter().map(|topic| is_in_use(sql, app, topic)).collect::<Result<Vec<_>, _>>()
        };
        let mut in_use = self.read_app(app, read).await?;
        in_use.resize(topics.len(), false);
        let unknown = topics.iter().zip(in_use).filter(|(_, in_use)| !in_use);
        Ok(unknown.map(|(topic, _)| topic.clone()).collect())
    }

    async fn remove_device_of(
        &self,
        app: &AppKey,
        user: &UserId,
        client: &ClientId,
    ) -> Result<bool, IndexError> {
        let (namespace, app) = (self.namespace(), app.clone());
        let (user, client) = (user.clone(), client.clone());
        let remove = move |sql: &Connection| match app_row(sql, &namespace, &app)? {
            Some(app) if is_of(sql, app, &user, &client)? => register::remove(sql, app, &client),
            _ => Ok(false),
        };
        Ok(self.database.write(remove).await?)
    }

    fn limit_topics(&self, most: usize) {
        self.most_topics.store(most, Ordering::Relaxed);
    }
}

fn is_in_use(sql: &Connection, app: i64, topic: &Topic) -> Result<bool, StoreError> {
    let find =
        "SELECT 1 FROM word WHERE app = ?1 AND attribute = ?2 AND value = ?3 AND retired = 0";
    let with = params![app, number(Column::Topic), topic.as_str()];
    Ok(sql.prepare_cached(find)?.exists(with)?)
}

fn is_of(sql: &Connection, app: i64, user: &UserId, client: &ClientId) -> Result<bool, StoreError> {
    let find = "SELECT 1 FROM device WHERE app = ?1 AND client = ?2 AND user_id = ?3";
    let with = params![app, client.as_str(), user.as_str()];
    Ok(sql.prepare_cached(find)?.exists(with)?)
}

fn devices_of(sql: &Connection, app: i64, user: &UserId) -> Result<Vec<ClientId>, StoreError> {
    let find = "SELECT client FROM device WHERE app = ?1 AND user_id = ?2 ORDER BY client LIMIT ?3";
    let mut statement = sql.prepare_cached(find)?;
    let mut rows = statement.query(params![app, user.as_str(), MAX_USER_DEVICES as i64])?;
    let mut clients = Vec::new();
    while let Some(row) = rows.next()? {
        // A client id that cannot be read is that of a device that cannot be sent to.
        let text = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        clients.extend(text.parse::<ClientId>());
    }
    Ok(clients)
}
