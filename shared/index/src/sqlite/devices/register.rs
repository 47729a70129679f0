//! Registering and removing devices.

use push_model::{
    app::AppKey, device::Device, ids::ClientId, time::UnixMillis, transfer::Registration,
};
use push_sqlite::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use super::dictionary::{Codes, Encoder};
use crate::{
    Put, PutRefused,
    sqlite::schema::{execute, generation},
};

/// The slots of an app during one transaction.
struct Slots<'a> {
    sql: &'a Connection,
    app: i64,
    /// How many slots were made so far, which is the number of the next new one.
    made: u32,
    most: u32,
}

impl Slots<'_> {
    /// A slot for a new device: the first free one, or a new one. None if the app has the most
    /// slots already.
    fn take(&mut self) -> Result<Option<u32>, StoreError> {
        let free = "SELECT min(slot) FROM free_slot WHERE app = ?1";
        let free: Option<u32> =
            self.sql.prepare_cached(free)?.query_row([self.app], |row| row.get(0))?;
        if let Some(slot) = free {
            let used = "DELETE FROM free_slot WHERE app = ?1 AND slot = ?2";
            execute(self.sql, used, params![self.app, slot])?;
            return Ok(Some(slot));
        }
        if self.made >= self.most {
            return Ok(None);
        }
        self.made += 1;
        Ok(Some(self.made - 1))
    }
}

/// Registers or replaces devices of an app, the new ones with these times of registration. The app need not have been created, but must not have
/// been removed.
pub(super) fn put(
    sql: &Connection,
    namespace: &str,
    app: &AppKey,
    devices: &[Registration],
    most_slots: u32,
) -> Result<Vec<Result<Put, PutRefused>>, StoreError> {
    if generation(sql, namespace, &app.id)? != app.generation {
        return Ok(vec![Err(PutRefused::AppRemoved); devices.len()]);
    }
    let begin = "INSERT OR IGNORE INTO app (namespace, name, generation) VALUES (?1, ?2, ?3)";
    execute(sql, begin, params![namespace, app.id.as_str(), app.generation.cast_signed()])?;
    let (app, made) = sql
        .prepare_cached("SELECT id, slots FROM app WHERE namespace = ?1 AND name = ?2")?
        .query_row([namespace, app.id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut slots = Slots { sql, app, made, most: most_slots };
    let mut dictionary = Encoder::new(sql, app);
    let mut created = 0;
    let mut results = Vec::with_capacity(devices.len());
    for Registration { device, registered_at } in devices {
        let (codes, absent) = dictionary.codes(&device.attributes)?;
        let result = if update(sql, app, device, &codes)? {
            Ok(Put::Updated)
        } else if let Some(slot) = slots.take()? {
            insert(sql, app, slot, device, &codes, *registered_at)?;
            created += 1;
            Ok(Put::Created)
        } else {
            Err(PutRefused::IndexFull)
        };
        results.push(result.map(|put: Put| put.without(absent)));
    }
    let count = "UPDATE app SET devices = devices + ?2, slots = ?3 WHERE id = ?1";
    execute(sql, count, params![app, created, slots.made])?;
    Ok(results)
}

/// Replaces a registered device, which keeps its slot and its time of registration. False if it is
/// not registered.
fn update(sql: &Connection, app: i64, device: &Device, codes: &Codes) -> Result<bool, StoreError> {
    let [country, language, brand, model, os_version, app_version] = codes;
    let update = "UPDATE device SET transport = ?3, token = ?4, country = ?5, language = ?6,
        brand = ?7, model = ?8, os_version = ?9, app_version = ?10
        WHERE app = ?1 AND client = ?2";
    let with = params![
        app,
        device.client_id.as_str(),
        device.transport.code(),
        device.token,
        country,
        language,
        brand,
        model,
        os_version,
        app_version,
    ];
    Ok(execute(sql, update, with)? > 0)
}

fn insert(
    sql: &Connection,
    app: i64,
    slot: u32,
    device: &Device,
    codes: &Codes,
    registered_at: UnixMillis,
) -> Result<(), StoreError> {
    let [country, language, brand, model, os_version, app_version] = codes;
    let insert = "INSERT INTO device (app, slot, client, born, transport, token, country, language,
        brand, model, os_version, app_version)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    let with = params![
        app,
        slot,
        device.client_id.as_str(),
        registered_at.0 as i64,
        device.transport.code(),
        device.token,
        country,
        language,
        brand,
        model,
        os_version,
        app_version,
    ];
    execute(sql, insert, with)?;
    Ok(())
}

/// Removes a device and frees its slot. False if there was none.
pub(super) fn remove(sql: &Connection, app: i64, client: &ClientId) -> Result<bool, StoreError> {
    let slot: Option<u32> = sql
        .prepare_cached("DELETE FROM device WHERE app = ?1 AND client = ?2 RETURNING slot")?
        .query_row(params![app, client.as_str()], |row| row.get(0))
        .optional()?;
    let Some(slot) = slot else { return Ok(false) };
    execute(sql, "INSERT INTO free_slot (app, slot) VALUES (?1, ?2)", params![app, slot])?;
    execute(sql, "UPDATE app SET devices = devices - 1 WHERE id = ?1", [app])?;
    Ok(true)
}
