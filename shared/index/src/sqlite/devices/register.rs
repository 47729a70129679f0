//! Registering, changing and removing devices.

use push_model::{
    app::AppKey,
    device::{Carrier, Device},
    ids::{ClientId, UserId},
    profile::{DeviceWrite, MAX_USER_DEVICES, ProfileChange, UserChange},
    registration::{CarrierChange, GoneDevice, RegistrationEpoch, Stamp, change_after},
    time::UnixMillis,
};
use push_sqlite::StoreError;
use push_store::sqlite::execute;
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    dictionary::{Codes, Decoder, Encoder},
    find,
    profile::{Dictionaries, ProfileCodes},
    scan::DeviceRow,
};
use crate::{
    Absent, PatchRefused, Put, PutRefused,
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

/// The bounds of an app.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) slots: u32,
    pub(super) topics: usize,
}

/// Registers or changes devices of an app, the new ones with these stamps. The app need not have been created,
/// but must not have been removed. With `only`, a device is written only while it is that registration.
pub(super) fn put(
    sql: &Connection,
    namespace: &str,
    app: &AppKey,
    devices: &[(DeviceWrite, Stamp)],
    only: Option<RegistrationEpoch>,
    most: Bounds,
) -> Result<Vec<Registered>, StoreError> {
    if generation(sql, namespace, &app.id)? != app.generation {
        return Ok(vec![Err(PutRefused::AppRemoved); devices.len()]);
    }
    let begin = "INSERT OR IGNORE INTO app (namespace, name, generation) VALUES (?1, ?2, ?3)";
    execute(sql, begin, params![namespace, app.id.as_str(), app.generation.cast_signed()])?;
    let (app, made) = sql
        .prepare_cached("SELECT id, slots FROM app WHERE namespace = ?1 AND name = ?2")?
        .query_row([namespace, app.id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut slots = Slots { sql, app, made, most: most.slots };
    let mut writer = Writer::new(sql, app, most.topics);
    let mut created = 0;
    let mut results = Vec::with_capacity(devices.len());
    for (DeviceWrite { device, change }, stamp) in devices {
        let before = find(sql, app, &device.client_id, Known::read)?;
        if only.is_some_and(|only| before.as_ref().map(|known| known.epoch) != Some(only)) {
            results.push(Err(PutRefused::NotRegistered));
            continue;
        }
        let (stored, absent) = writer.encode(device, change, before.as_ref())?;
        let result = if let Some(before) = before {
            update(sql, app, device, &stored, &before, stamp.renewed_at)?;
            Ok((Put::Updated.without(absent), before.epoch))
        } else if let Some(slot) = slots.take()? {
            insert(sql, app, slot, device, &stored, *stamp)?;
            created += 1;
            Ok((Put::Created.without(absent), stamp.epoch()))
        } else {
            Err(PutRefused::IndexFull)
        };
        results.push(result);
    }
    let count = "UPDATE app SET devices = devices + ?2, slots = ?3 WHERE id = ?1";
    execute(sql, count, params![app, created, slots.made])?;
    Ok(results)
}

/// Changes the profiles of devices of an app.
pub(super) fn patch(
    sql: &Connection,
    app: i64,
    changes: &[(ClientId, ProfileChange)],
    most: Bounds,
) -> Result<Vec<Result<Absent, PatchRefused>>, StoreError> {
    let mut writer = Writer::new(sql, app, most.topics);
    let update = "UPDATE device SET custom = ?3, topics = ?4, user_id = ?5
        WHERE app = ?1 AND client = ?2";
    let mut patch = |(client, change): &(ClientId, ProfileChange)| {
        let before = match find(sql, app, client, Known::profile) {
            Ok(Some(before)) => before,
            Ok(None) => return Ok(Err(PatchRefused::Unknown)),
            Err(StoreError::Unreadable(_)) => return Ok(Err(PatchRefused::Unreadable)),
            Err(error) => return Err(error),
        };
        let mut absent = Absent::default();
        let (profile, user_id) = writer.change(client, change, before, &mut absent)?;
        let user_id = user_id.as_ref().map(UserId::as_str);
        let (custom, topics) = (profile.custom_column(), profile.topics_column());
        execute(sql, update, params![app, client.as_str(), custom, topics, user_id])?;
        Ok(Ok(absent))
    };
    changes.iter().map(&mut patch).collect()
}

/// A device that is registered.
struct Known {
    carrier: Option<Carrier>,
    change: Option<CarrierChange>,
    epoch: RegistrationEpoch,
    profile: (ProfileCodes, Option<UserId>),
}

impl Known {
    /// What cannot be read is replaced.
    fn read(found: &DeviceRow<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            carrier: found.carrier().ok(),
            change: found.change().unwrap_or_default(),
            epoch: found.stamp()?.epoch(),
            profile: (found.profile().unwrap_or_default(), found.user_id().unwrap_or_default()),
        })
    }

    fn profile(found: &DeviceRow<'_>) -> Result<(ProfileCodes, Option<UserId>), StoreError> {
        Ok((found.profile()?, found.user_id()?))
    }
}

/// The form in which a device is stored.
struct Stored {
    codes: Codes,
    profile: ProfileCodes,
    user_id: Option<UserId>,
}

/// Finds the form in which devices are stored, during one transaction.
struct Writer<'a> {
    sql: &'a Connection,
    app: i64,
    dictionaries: Dictionaries<'a>,
}

impl<'a> Writer<'a> {
    fn new(sql: &'a Connection, app: i64, most_topics: usize) -> Self {
        let encoder = Encoder::new(sql, app, most_topics);
        let dictionaries = Dictionaries { encoder, decoder: Decoder::new(sql, app) };
        Self { sql, app, dictionaries }
    }

    /// The form of a device and what is left out of it.
    fn encode(
        &mut self,
        device: &Device,
        change: &ProfileChange,
        before: Option<&Known>,
    ) -> Result<(Stored, Absent), StoreError> {
        let (codes, attributes) = self.dictionaries.encoder.codes(&device.attributes)?;
        let mut absent = Absent { attributes, ..Absent::default() };
        let before = before.map(|known| known.profile.clone()).unwrap_or_default();
        let (profile, user_id) = self.change(&device.client_id, change, before, &mut absent)?;
        Ok((Stored { codes, profile, user_id }, absent))
    }

    /// The profile and the user of a device after a change. What is left out is added to `absent`.
    fn change(
        &mut self,
        client: &ClientId,
        change: &ProfileChange,
        (mut profile, before): (ProfileCodes, Option<UserId>),
        absent: &mut Absent,
    ) -> Result<(ProfileCodes, Option<UserId>), StoreError> {
        profile.change(change, &mut self.dictionaries, absent)?;
        let user_id = match &change.user_id {
            UserChange::Keep => before,
            UserChange::Set(Some(user)) if self.has_room(user, client)? => Some(user.clone()),
            UserChange::Set(user) => {
                absent.user_id = user.is_some();
                None
            }
        };
        Ok((profile, user_id))
    }

    /// Returns true if a user may have this device beside his others.
    fn has_room(&self, user: &UserId, client: &ClientId) -> Result<bool, StoreError> {
        let count = "SELECT count(*) FROM device WHERE app = ?1 AND user_id = ?2 AND client <> ?3";
        let with = params![self.app, user.as_str(), client.as_str()];
        let others: i64 = self.sql.prepare_cached(count)?.query_row(with, |row| row.get(0))?;
        Ok(others < MAX_USER_DEVICES as i64)
    }
}

/// Replaces a registered device, which keeps its slot and its first registration.
fn update(
    sql: &Connection,
    app: i64,
    device: &Device,
    stored: &Stored,
    before: &Known,
    now: UnixMillis,
) -> Result<(), StoreError> {
    let carrier = device.carrier();
    let change = change_after(before.carrier.unwrap_or(carrier), before.change, carrier, now);
    let [country, language, brand, model, os_version, app_version] = stored.codes;
    let update = "UPDATE device SET transport = ?3, token = ?4, country = ?5, language = ?6,
        brand = ?7, model = ?8, os_version = ?9, app_version = ?10, renewed = ?11,
        transport_before = ?12, transport_since = ?13, transport_partition = ?14,
        custom = ?15, topics = ?16, user_id = ?17
        WHERE app = ?1 AND client = ?2";
    let with = params![
        app,
        device.client_id.as_str(),
        carrier.code(),
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
        stored.profile.custom_column(),
        stored.profile.topics_column(),
        stored.user_id.as_ref().map(UserId::as_str),
    ];
    execute(sql, update, with)?;
    Ok(())
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
    stored: &Stored,
    stamp: Stamp,
) -> Result<(), StoreError> {
    let [country, language, brand, model, os_version, app_version] = stored.codes;
    let insert = "INSERT INTO device (app, slot, client, born, transport, token, country, language,
        brand, model, os_version, app_version, serial, renewed, custom, topics, user_id)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
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
        stored.profile.custom_column(),
        stored.profile.topics_column(),
        stored.user_id.as_ref().map(UserId::as_str),
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
            let (carrier, token) = (found.carrier()?, found.token()?);
            Ok(gone.is_of(carrier.kind(), token.as_deref(), found.stamp()?.renewed_at))
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
