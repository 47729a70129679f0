//! Registering and removing devices.

use push_model::{
    app::AppKey,
    device::Device,
    ids::ClientId,
    registration::{GoneDevice, RegistrationEpoch, Stamp, change_after},
    time::UnixMillis,
    transfer::Registration,
};
use push_sqlite::StoreError;
use push_store::sqlite::execute;
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    dictionary::{Codes, Encoder},
    find,
};
use crate::{
    Put, PutRefused,
    sqlite::{
        apps::generation,
        gone::{list, trim},
    },
};

/// The slots of an app during one transaction.
struct Slots<'a> {
    sql: &'a Connection,
    app: i64,
    /// The number of slots made so far, which is also the number of the next slot.
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

/// The effect of a registration and the epoch of the stored device, or the reason why it was
/// refused.
pub(super) type Registered = Result<(Put, RegistrationEpoch), PutRefused>;

/// Registers or replaces devices of an app, the new ones with these stamps. The app need not have been created,
/// but must not have been removed.
pub(super) fn put(
    sql: &Connection,
    namespace: &str,
    app: &AppKey,
    devices: &[Registration],
    most_slots: u32,
) -> Result<Vec<Registered>, StoreError> {
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
    for Registration { device, stamp } in devices {
        let (codes, absent) = dictionary.codes(&device.attributes)?;
        let result = if let Some(epoch) = update(sql, app, device, &codes, stamp.renewed_at)? {
            Ok((Put::Updated, epoch))
        } else if let Some(slot) = slots.take()? {
            insert(sql, app, slot, device, &codes, *stamp)?;
            created += 1;
            Ok((Put::Created, stamp.epoch()))
        } else {
            Err(PutRefused::IndexFull)
        };
        results.push(result.map(|(put, epoch): (Put, _)| (put.without(absent.into()), epoch)));
    }
    let count = "UPDATE app SET devices = devices + ?2, slots = ?3 WHERE id = ?1";
    execute(sql, count, params![app, created, slots.made])?;
    Ok(results)
}

/// Replaces a registered device, which keeps its slot and its first registration, and answers the epoch of it. None
/// if the device is not registered.
fn update(
    sql: &Connection,
    app: i64,
    device: &Device,
    codes: &Codes,
    now: UnixMillis,
) -> Result<Option<RegistrationEpoch>, StoreError> {
    let known = find(sql, app, &device.client_id, |found| {
        // An unreadable value is replaced.
        let carrier = found.carrier().unwrap_or(device.carrier());
        Ok((carrier, found.change().unwrap_or_default(), found.stamp()?.epoch()))
    })?;
    let Some((before, change, epoch)) = known else { return Ok(None) };
    let change = change_after(before, change, device.carrier(), now);
    let [country, language, brand, model, os_version, app_version] = codes;
    let update = "UPDATE device SET transport = ?3, token = ?4, country = ?5, language = ?6,
        brand = ?7, model = ?8, os_version = ?9, app_version = ?10, renewed = ?11,
        transport_before = ?12, transport_since = ?13, transport_partition = ?14
        WHERE app = ?1 AND client = ?2";
    let with = params![
        app,
        device.client_id.as_str(),
        device.carrier().code(),
        device.token,
        country,
        language,
        brand,
        model,
        os_version,
        app_version,
        renewed(device, now),
        change.map(|change| change.from.code()),
        change.map(|change| change.at.0.cast_signed()),
        change.map(|change| change.to.code()),
    ];
    execute(sql, update, with)?;
    Ok(Some(epoch))
}

/// The time of renewal, if the device's transport keeps it.
fn renewed(device: &Device, now: UnixMillis) -> Option<i64> {
    device.transport.is_renewed().then_some(now.0.cast_signed())
}

fn insert(
    sql: &Connection,
    app: i64,
    slot: u32,
    device: &Device,
    codes: &Codes,
    stamp: Stamp,
) -> Result<(), StoreError> {
    let [country, language, brand, model, os_version, app_version] = codes;
    let insert = "INSERT INTO device (app, slot, client, born, transport, token, country, language,
        brand, model, os_version, app_version, serial, renewed)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    let with = params![
        app,
        slot,
        device.client_id.as_str(),
        stamp.registered_at.0.cast_signed(),
        device.carrier().code(),
        device.token,
        country,
        language,
        brand,
        model,
        os_version,
        app_version,
        stamp.serial.get(),
        renewed(device, stamp.renewed_at),
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

/// Removes those of these devices that are still registered as they were reported; true for those.
pub(super) fn remove_gone(
    sql: &Connection,
    app: i64,
    gone: &[GoneDevice],
    now: UnixMillis,
) -> Result<Vec<bool>, StoreError> {
    let is_of = |gone: &GoneDevice| {
        let found = find(sql, app, &gone.client_id, |found| {
            let (target, stamp) = (found.target()?, found.stamp()?);
            Ok(gone.is_of(target.transport, target.token.as_deref(), stamp.renewed_at))
        });
        match found {
            Ok(found) => Ok(found.unwrap_or(false)),
            Err(StoreError::Unreadable(_)) => Ok(false),
            Err(error) => Err(error),
        }
    };
    let mut removed = Vec::with_capacity(gone.len());
    for gone in gone {
        let is_removed = is_of(gone)? && remove(sql, app, &gone.client_id)?;
        if is_removed {
            list(sql, app, &gone.removed(now))?;
        }
        removed.push(is_removed);
    }
    trim(sql, app, now)?;
    Ok(removed)
}
