//! Finding the devices of users, by an index of the table.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    ids::{ClientId, UserId},
    profile::MAX_USER_DEVICES,
};
use push_sqlite::StoreError;
use push_store::IndexError;
use rusqlite::{Connection, params};

use crate::{Users, sqlite::SqliteIndex};

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

    fn limit_topics(&self, most: usize) {
        self.most_topics.store(most, Ordering::Relaxed);
    }
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
