//! Apps that come from another store: an arrival is a column of the app's row, whose record is missing
//! until the app has arrived.

use async_trait::async_trait;
use push_model::{
    app::{App, AppKey},
    ids::AppId,
    slots::SlotRange,
    transfer::{Arrival, Registration},
};
use push_sqlite::StoreError;
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    SqliteIndex,
    apps::{generation, write},
};
use crate::{Put, PutRefused, Scanned, Transfer};

/// The row of a name: the generation of the app, its record and its arrival.
type Row = (i64, Option<String>, Option<String>);

fn row(sql: &Connection, namespace: &str, app: &AppId) -> Result<Option<Row>, StoreError> {
    let find = "SELECT generation, record, arrival FROM app WHERE namespace = ?1 AND name = ?2";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    Ok(sql.prepare_cached(find)?.query_row([namespace, app.as_str()], read).optional()?)
}

fn read_arrival(json: &str) -> Result<Arrival, StoreError> {
    serde_json::from_str(json)
        .map_err(|error| StoreError::Unreadable(format!("an arrival: {error}")))
}

fn json(arrival: &Arrival) -> Result<String, StoreError> {
    serde_json::to_string(arrival)
        .map_err(|error| StoreError::Unreadable(format!("an arrival: {error}")))
}

/// Returns true if this arrival may take the place of what the name has.
fn may_arrive(arrival: &Arrival, found: Option<&Row>) -> Result<bool, StoreError> {
    let Some((generation, record, before)) = found else { return Ok(true) };
    let is_of_generation = generation.cast_unsigned() == arrival.generation;
    Ok(match (before, record) {
        (Some(before), _) => {
            is_of_generation && read_arrival(before)?.created_at == arrival.created_at
        }
        (None, Some(record)) => {
            let app: App = serde_json::from_str(record)
                .map_err(|error| StoreError::Unreadable(format!("an app: {error}")))?;
            is_of_generation && app.moved_to.is_some()
        }
        // Devices that were registered for an app that never was.
        (None, None) => true,
    })
}

fn begin_arrival(
    sql: &Connection,
    namespace: &str,
    app: &AppId,
    arrival: &Arrival,
) -> Result<bool, StoreError> {
    let found = row(sql, namespace, app)?;
    if generation(sql, namespace, app)? > arrival.generation
        || !may_arrive(arrival, found.as_ref())?
    {
        return Ok(false);
    }
    let json = json(arrival)?;
    let number = arrival.generation.cast_signed();
    // Devices of another generation are not the app's: they are deleted with the next removal.
    let others = "UPDATE app SET namespace = NULL, record = NULL, arrival = NULL
        WHERE namespace = ?1 AND name = ?2 AND generation <> ?3";
    execute(sql, others, params![namespace, app.as_str(), number])?;
    let count = "INSERT INTO removed_app (namespace, name, count) VALUES (?1, ?2, ?3)
        ON CONFLICT (namespace, name) DO UPDATE SET count = excluded.count";
    execute(sql, count, params![namespace, app.as_str(), number])?;
    let save = "INSERT INTO app (namespace, name, generation, arrival) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (namespace, name) DO UPDATE SET record = NULL, arrival = excluded.arrival";
    execute(sql, save, params![namespace, app.as_str(), number, json])?;
    Ok(true)
}

fn save_arrival(
    sql: &Connection,
    namespace: &str,
    app: &AppId,
    arrival: &Arrival,
) -> Result<bool, StoreError> {
    let Some((.., Some(before))) = row(sql, namespace, app)? else { return Ok(false) };
    let before = read_arrival(&before)?;
    if before.created_at != arrival.created_at || before.attempt != arrival.attempt {
        return Ok(false);
    }
    let save = "UPDATE app SET arrival = ?3 WHERE namespace = ?1 AND name = ?2";
    execute(sql, save, params![namespace, app.as_str(), json(arrival)?])?;
    Ok(true)
}

fn finish_arrival(
    sql: &Connection,
    namespace: &str,
    app: &App,
    attempt: &str,
) -> Result<bool, StoreError> {
    let Some((generation, _, Some(arrival))) = row(sql, namespace, &app.app_id)? else {
        return Ok(false);
    };
    let arrival = read_arrival(&arrival)?;
    if arrival.created_at != app.created_at
        || generation.cast_unsigned() != app.generation
        || arrival.attempt != attempt
    {
        return Ok(false);
    }
    let finish = "UPDATE app SET record = ?3, arrival = NULL WHERE namespace = ?1 AND name = ?2";
    execute(sql, finish, params![namespace, app.app_id.as_str(), write(app)?])?;
    Ok(true)
}

#[async_trait]
impl Transfer for SqliteIndex {
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
        self.put_registered(app, devices).await
    }

    async fn removed_apps(&self, app: &AppId) -> Result<u64, IndexError> {
        let (namespace, app) = (self.namespace(), app.clone());
        Ok(self.database.read(move |sql| generation(sql, &namespace, &app)).await?)
    }

    async fn arrival(&self, app: &AppId) -> Result<Option<Arrival>, IndexError> {
        let (namespace, app) = (self.namespace(), app.clone());
        let find = move |sql: &Connection| match row(sql, &namespace, &app)? {
            Some((_, _, Some(arrival))) => read_arrival(&arrival).map(Some),
            _ => Ok(None),
        };
        Ok(self.database.read(find).await?)
    }

    async fn begin_arrival(&self, app: &AppId, arrival: &Arrival) -> Result<bool, IndexError> {
        let (namespace, app, arrival) = (self.namespace(), app.clone(), arrival.clone());
        let begin = move |sql: &Connection| begin_arrival(sql, &namespace, &app, &arrival);
        Ok(self.database.write(begin).await?)
    }

    async fn save_arrival(&self, app: &AppId, arrival: &Arrival) -> Result<bool, IndexError> {
        let (namespace, app, arrival) = (self.namespace(), app.clone(), arrival.clone());
        let save = move |sql: &Connection| save_arrival(sql, &namespace, &app, &arrival);
        Ok(self.database.write(save).await?)
    }

    async fn finish_arrival(&self, app: &App, attempt: &str) -> Result<bool, IndexError> {
        let (namespace, app, attempt) = (self.namespace(), app.clone(), attempt.to_owned());
        let finish = move |sql: &Connection| finish_arrival(sql, &namespace, &app, &attempt);
        Ok(self.database.write(finish).await?)
    }
}
