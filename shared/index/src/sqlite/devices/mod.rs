//! The devices of an app. A call is one transaction on the file; a registration is one for every
//! [`PUT_DEVICES`] devices.
//!
//! - [`register`]: registering and removing devices
//! - [`scan`]: reading devices by their slots
//! - [`criteria`]: targeting by codes. [`filter`]: the filter of a targeting
//! - [`dictionary`]: values, topics and their codes. [`sweep`]: freeing those that no device has
//! - [`profile`]: custom attributes, topics and users. [`users`]: finding the devices of users

pub(super) mod criteria;
mod dictionary;
mod filter;
mod profile;
mod register;
mod scan;
mod sweep;
mod users;

use std::sync::{Arc, atomic::Ordering};

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    attributes::Attribute,
    device::{Device, NoTarget, Target, TargetFields},
    ids::ClientId,
    profile::{DeviceWrite, ProfileChange},
    registration::{GoneDevice, RegistrationEpoch, Stamp},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
    transfer::Registration,
};
use push_sqlite::StoreError;
use push_store::IndexError;
use rusqlite::{Connection, OptionalExtension, params};
use tracing::warn;

use self::{
    criteria::Criteria,
    dictionary::Decoder,
    register::{Bounds, Registered},
    scan::{COLUMNS, DeviceRow, Wanted},
};
use super::{SqliteIndex, apps::app_row};
use crate::{
    Absent, CarrierExtent, CountedSlice, Devices, PatchRefused, Put, PutRefused, Scanned,
    Selection, TalliedSlice,
};

/// The most devices that one transaction registers, because other writers of the file wait for it.
const PUT_DEVICES: usize = 16_384;

/// Finds one device and reads its row with `take`.
fn find<T>(
    sql: &Connection,
    app: i64,
    client: &ClientId,
    take: impl FnOnce(&DeviceRow<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let find = format!("SELECT {COLUMNS} FROM device WHERE app = ?1 AND client = ?2");
    let mut statement = sql.prepare_cached(&find)?;
    let mut rows = statement.query(params![app, client.as_str()])?;
    rows.next()?.map(|row| take(&DeviceRow(row))).transpose()
}

impl SqliteIndex {
    /// Reads an app's rows with `read`; the default if the app has none.
    async fn read_app<F, T>(&self, app: &AppKey, read: F) -> Result<T, IndexError>
    where
        F: FnOnce(&Connection, i64) -> Result<T, StoreError> + Send + 'static,
        T: Default + Send + 'static,
    {
        let (namespace, app) = (self.namespace(), app.clone());
        let read = move |sql: &Connection| match app_row(sql, &namespace, &app)? {
            Some(app) => read(sql, app),
            None => Ok(T::default()),
        };
        Ok(self.database.read(read).await?)
    }

    /// Registers devices in one transaction. With `only`, a device is written only while it is that registration.
    async fn put_some(
        &self,
        app: &AppKey,
        devices: Vec<(DeviceWrite, Stamp)>,
        only: Option<RegistrationEpoch>,
    ) -> Result<Vec<Registered>, IndexError> {
        let (namespace, app, most) = (self.namespace(), app.clone(), self.bounds());
        let put =
            move |sql: &Connection| register::put(sql, &namespace, &app, &devices, only, most);
        Ok(self.database.write(put).await?)
    }

    fn bounds(&self) -> Bounds {
        Bounds { slots: self.most_slots, topics: self.most_topics.load(Ordering::Relaxed) }
    }

    /// The stamp of a device that registers, if it is new.
    fn stamp(&self, now: UnixMillis) -> Stamp {
        Stamp::new(now, self.serials.next())
    }

    /// As [`Devices::put_devices`], with the stamp of each device.
    pub(super) async fn put_registered(
        &self,
        app: &AppKey,
        devices: &[Registration],
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        let mut results = Vec::with_capacity(devices.len());
        for devices in devices.chunks(PUT_DEVICES) {
            let write =
                |Registration { device, stamp }: &Registration| (device.clone().into(), *stamp);
            results.extend(self.put_some(app, devices.iter().map(write).collect(), None).await?);
        }
        Ok(results.into_iter().map(|answer| answer.map(|(put, _)| put)).collect())
    }

    /// Returns a function that makes what a scan looks for by the codes of an app.
    fn wanted(
        &self,
        selection: Selection<'_>,
    ) -> impl FnOnce(&Connection, i64) -> Result<Wanted, StoreError> + Send + use<> {
        let Selection { carrier, targeting, registered_by } = selection;
        let (targeting, cache) = (targeting.clone(), Arc::clone(&self.criteria_cache));
        move |sql, app| {
            let criteria = Criteria::of(&cache, sql, app, &targeting)?;
            let sample = targeting.sample;
            Ok(Wanted { carrier, criteria, sample, registered_by })
        }
    }

    /// The next devices of a range, whole, and when they registered.
    pub(super) async fn registrations_in_range(
        &self,
        app: &AppKey,
        range: SlotRange,
        limit: usize,
    ) -> Result<Scanned<Registration>, IndexError> {
        self.read_app(app, move |sql, app| scan::registrations(sql, app, range, limit)).await
    }
}

#[async_trait]
impl Devices for SqliteIndex {
    /// The first bytes of the id, because the table has an index by client id.
    fn storage_order(&self, client: &ClientId) -> u64 {
        let mut first = [0; 8];
        first.iter_mut().zip(client.as_str().bytes()).for_each(|(to, from)| *to = from);
        u64::from_be_bytes(first)
    }

    async fn write_devices(
        &self,
        app: &AppKey,
        devices: &[DeviceWrite],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        let mut results = Vec::with_capacity(devices.len());
        for devices in devices.chunks(PUT_DEVICES) {
            let of_now = devices.iter().map(|write| (write.clone(), self.stamp(now)));
            results.extend(self.put_some(app, of_now.collect(), None).await?);
        }
        Ok(results.into_iter().map(|answer| answer.map(|(put, _)| put)).collect())
    }

    async fn patch_devices(
        &self,
        app: &AppKey,
        changes: &[(ClientId, ProfileChange)],
    ) -> Result<Vec<Result<Absent, PatchRefused>>, IndexError> {
        let (most, mut results) = (self.bounds(), Vec::with_capacity(changes.len()));
        for changes in changes.chunks(PUT_DEVICES) {
            let (namespace, app, changes) = (self.namespace(), app.clone(), changes.to_vec());
            let patch = move |sql: &Connection| match app_row(sql, &namespace, &app)? {
                Some(app) => register::patch(sql, app, &changes, most),
                None => Ok(vec![Err(PatchRefused::Unknown); changes.len()]),
            };
            results.extend(self.database.write(patch).await?);
        }
        Ok(results)
    }

    async fn register(
        &self,
        app: &AppKey,
        device: &DeviceWrite,
        only: Option<RegistrationEpoch>,
        now: UnixMillis,
    ) -> Result<Result<(Put, RegistrationEpoch), PutRefused>, IndexError> {
        let registered = self.put_some(app, vec![(device.clone(), self.stamp(now))], only).await?;
        let none = || IndexError::Corrupt("a registration's answer is empty".to_owned());
        registered.into_iter().next().ok_or_else(none)
    }

    async fn device(&self, app: &AppKey, client: &ClientId) -> Result<Option<Device>, IndexError> {
        let client = client.clone();
        let read = move |sql: &Connection, app| {
            find(sql, app, &client, |found| found.device(&mut Decoder::new(sql, app)))
        };
        self.read_app(app, read).await
    }

    async fn remove_device(&self, app: &AppKey, client: &ClientId) -> Result<bool, IndexError> {
        let (namespace, app, client) = (self.namespace(), app.clone(), client.clone());
        let remove = move |sql: &Connection| match app_row(sql, &namespace, &app)? {
            Some(app) => register::remove(sql, app, &client),
            None => Ok(false),
        };
        Ok(self.database.write(remove).await?)
    }

    async fn remove_devices(
        &self,
        app: &AppKey,
        gone: &[GoneDevice],
        now: UnixMillis,
    ) -> Result<Vec<bool>, IndexError> {
        let mut removed = Vec::with_capacity(gone.len());
        for gone in gone.chunks(PUT_DEVICES) {
            let (namespace, app, gone) = (self.namespace(), app.clone(), gone.to_vec());
            let remove = move |sql: &Connection| match app_row(sql, &namespace, &app)? {
                Some(app) => register::remove_gone(sql, app, &gone, now),
                None => Ok(vec![false; gone.len()]),
            };
            removed.extend(self.database.write(remove).await?);
        }
        Ok(removed)
    }

    async fn count_devices(&self, app: &AppKey) -> Result<u64, IndexError> {
        let count = |sql: &Connection, app| {
            let count: Option<i64> = sql
                .prepare_cached("SELECT devices FROM app WHERE id = ?1")?
                .query_row([app], |row| row.get(0))
                .optional()?;
            Ok(count.unwrap_or_default().unsigned_abs())
        };
        self.read_app(app, count).await
    }

    async fn extent(&self, app: &AppKey) -> Result<Vec<SlotRange>, IndexError> {
        self.read_app(app, |sql, app| Ok(scan::extent(sql, app)?.into_iter().collect())).await
    }

    async fn carriers(&self, app: &AppKey) -> Result<Vec<CarrierExtent>, IndexError> {
        self.read_app(app, scan::carriers).await
    }

    async fn targets(
        &self,
        app: &AppKey,
        clients: &[ClientId],
        fields: TargetFields,
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError> {
        let (ids, app_id) = (clients.to_vec(), app.id.clone());
        let read = move |sql: &Connection, app| {
            let mut dictionary = Decoder::new(sql, app);
            let target =
                |id| match find(sql, app, id, |found| found.target(fields, &mut dictionary)) {
                    Ok(found) => Ok(found.ok_or(NoTarget::Unknown)),
                    Err(StoreError::Unreadable(what)) => {
                        warn!(
                            runbook = "stored-records-cannot-be-read",
                            app = %app_id,
                            client_id = %id,
                            what,
                            "a named device is left out"
                        );
                        Ok(Err(NoTarget::Unreadable))
                    }
                    Err(error) => Err(error),
                };
            ids.iter().map(target).collect::<Result<_, _>>()
        };
        let mut targets: Vec<_> = self.read_app(app, read).await?;
        // If the app has no row, `read` did not run.
        targets.resize(clients.len(), Err(NoTarget::Unknown));
        Ok(targets)
    }

    async fn scan(
        &self,
        app: &AppKey,
        range: SlotRange,
        selection: Selection<'_>,
        fields: TargetFields,
        limit: usize,
    ) -> Result<Scanned<Target>, IndexError> {
        let wanted = self.wanted(selection);
        let read = move |sql: &Connection, app| {
            scan::targets(sql, app, range, &wanted(sql, app)?, fields, limit)
        };
        Ok(self.read_app(app, read).await?)
    }

    async fn count_matching(
        &self,
        app: &AppKey,
        range: SlotRange,
        selection: Selection<'_>,
    ) -> Result<u64, IndexError> {
        let wanted = self.wanted(selection);
        let read = move |sql: &Connection, app| scan::count(sql, app, range, &wanted(sql, app)?);
        self.read_app(app, read).await
    }

    async fn count_slice(
        &self,
        app: &AppKey,
        range: SlotRange,
        targeting: &Targeting,
    ) -> Result<CountedSlice, IndexError> {
        let (targeting, cache) = (targeting.clone(), Arc::clone(&self.criteria_cache));
        let read = move |sql: &Connection, app| {
            let criteria = Criteria::of(&cache, sql, app, &targeting)?;
            scan::audience(sql, app, range, &criteria, &targeting)
        };
        self.read_app(app, read).await
    }

    async fn tally_slice(
        &self,
        app: &AppKey,
        range: SlotRange,
        attribute: Attribute,
    ) -> Result<TalliedSlice, IndexError> {
        self.read_app(app, move |sql, app| scan::tally(sql, app, range, attribute)).await
    }

    async fn list_devices(
        &self,
        app: &AppKey,
        range: SlotRange,
        limit: usize,
    ) -> Result<Scanned<Device>, IndexError> {
        let Scanned { items, unreadable, next } =
            self.registrations_in_range(app, range, limit).await?;
        let items = items.into_iter().map(|registration| registration.device).collect();
        Ok(Scanned { items, unreadable, next })
    }
}
