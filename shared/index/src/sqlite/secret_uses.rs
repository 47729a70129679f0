//! Last uses of secrets: a row for each.

use std::collections::BTreeMap;

use async_trait::async_trait;
use push_model::{app::AppKey, time::UnixMillis};
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, params};

use super::{SqliteIndex, apps::app_row};
use crate::{SecretUses, apps::forget_uses_before};

#[async_trait]
impl SecretUses for SqliteIndex {
    async fn save_secret_uses(
        &self,
        app: &AppKey,
        uses: &[(&str, Option<UnixMillis>)],
    ) -> Result<(), IndexError> {
        let (namespace, app, old) = (self.namespace(), app.clone(), forget_uses_before(uses));
        let uses: BTreeMap<String, Option<UnixMillis>> =
            uses.iter().map(|(name, used_at)| ((*name).to_owned(), *used_at)).collect();
        let save = move |sql: &Connection| {
            let Some(app) = app_row(sql, &namespace, &app)? else { return Ok(()) };
            for (name, used_at) in read(sql, app)? {
                if uses.contains_key(&name) || used_at >= old {
                    continue;
                }
                let forget = "DELETE FROM secret_use WHERE app = ?1 AND name = ?2";
                execute(sql, forget, params![app, name])?;
            }
            for (name, used_at) in uses.iter().filter_map(|(name, at)| Some((name, (*at)?))) {
                let save = "INSERT INTO secret_use (app, name, used_at) VALUES (?1, ?2, ?3)
                    ON CONFLICT (app, name) DO UPDATE SET used_at = max(used_at, excluded.used_at)";
                execute(sql, save, params![app, name, used_at.0.cast_signed()])?;
            }
            Ok(())
        };
        Ok(self.database.write(save).await?)
    }

    async fn secret_uses(&self, app: &AppKey) -> Result<BTreeMap<String, UnixMillis>, IndexError> {
        let (namespace, app) = (self.namespace(), app.clone());
        let find = move |sql: &Connection| match app_row(sql, &namespace, &app)? {
            Some(app) => Ok(read(sql, app)?),
            None => Ok(BTreeMap::new()),
        };
        Ok(self.database.read(find).await?)
    }
}

fn read(sql: &Connection, app: i64) -> rusqlite::Result<BTreeMap<String, UnixMillis>> {
    let list = "SELECT name, used_at FROM secret_use WHERE app = ?1";
    let mut statement = sql.prepare_cached(list)?;
    let row = |row: &rusqlite::Row<'_>| {
        Ok((row.get(0)?, UnixMillis(row.get::<_, i64>(1)?.cast_unsigned())))
    };
    statement.query_map([app], row)?.collect()
}
