//! The devices of an app: registering, reading, scanning and removing them.
//!
//! - [`record`]: a device's record, and chunks of records. [`profile`]: the profile in it. [`shard`]: the size of a shard.
//! - [`find`]: from client ids to records.
//! - [`registration`]: writing devices that are new or changed.
//! - [`scan`]: the devices of a slot range that match a targeting.

pub(super) mod find;
pub(super) mod profile;
pub(super) mod record;
pub(super) mod registration;
pub(super) mod scan;
mod shard;

use async_trait::async_trait;
use futures::{future, stream::BoxStream};
use push_model::{
    app::AppKey,
    attributes::Attribute,
    device::{Device, NoTarget, Target, TargetFields},
    gone::RemovedDevice,
    ids::{ClientId, UserId},
    profile::{DeviceWrite, ProfileChange},
    registration::{GoneDevice, RegistrationEpoch, Stamp},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use push_store::{IndexError, redis::connection::reply};
use redis::Value;

use self::{
    find::FoundDevice,
    registration::COALESCED_DEVICES,
    shard::{ShardSize, carrier_extents},
};
pub(super) use self::{
    find::{BucketCounts, Lookups, SlotCache, bucket_counts, find, lookups},
    profile::{CodedChange, CustomCodes, ProfileCodes, Section, TopicCodes},
    record::Codes,
    registration::{Registrations, registrations},
    scan::{TableCache, table_cache},
};
use super::{
    RedisIndex,
    dictionary::{Moment, unknown_code},
    layout::{ClientHash, SHARDS},
};
use crate::{
    Absent, CarrierExtent, CountedSlice, Devices, PatchRefused, Put, PutRefused, Scanned,
    Selection, TalliedSlice,
};

/// Removals that are in flight at the same time.
const REMOVALS_AT_ONCE: usize = 32;

impl RedisIndex {
    /// Removes a device, if its record names this user.
    pub(super) async fn remove_of_user(
        &self,
        app: &AppKey,
        user: &UserId,
        client: &ClientId,
    ) -> Result<bool, IndexError> {
        let mut stored: Option<Vec<u8>> = None;
        let clients = std::slice::from_ref(client);
        find(&self.context, &self.keys, app, clients, |_, found| {
            // A record that cannot be read names no user.
            let record = match found {
                Err(IndexError::Corrupt(_)) => return Ok(()),
                found => found?.record,
            };
            if record.profile.user() == user.as_str() {
                record.encode(stored.insert(Vec::new()))?;
            }
            Ok(())
        })
        .await?;
        match stored {
            Some(record) => self.remove_if(app, client, Some(&record)).await,
            None => Ok(false),
        }
    }

    /// Removes a device, or removes it only while it has this record.
    async fn remove_if(
        &self,
        app: &AppKey,
        client: &ClientId,
        record: Option<&[u8]>,
    ) -> Result<bool, IndexError> {
        let ClientHash { shard, tag } = ClientHash::of(client);
        let keys = self.keys.shard(app, shard);
        let mut remove = self.scripts.remove.call(&[keys.base()]);
        remove.arg(&tag[..]).arg(client.as_str());
        if let Some(record) = record {
            remove.arg(record);
        }
        // The number, or the user that the device had.
        let user = match remove.run(&self.quick).await? {
            user @ Value::BulkString(_) => reply::text(user)?,
            number => return Ok(reply::number(number)? == Some(1)),
        };
        self.users(app).drop(&[(&user, client)]).await;
        Ok(true)
    }
}

#[async_trait]
impl Devices for RedisIndex {
    fn storage_order(&self, client: &ClientId) -> u64 {
        ClientHash::of(client).storage_order()
    }

    async fn write_devices(
        &self,
        app: &AppKey,
        devices: &[DeviceWrite],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        let stamp = |write: &DeviceWrite| (write.clone(), Stamp::new(now, self.serials.next()));
        let stamped: Vec<_> = devices.iter().map(stamp).collect();
        match devices.len() {
            0 => Ok(Vec::new()),
            1..=COALESCED_DEVICES => {
                let registered = self.register_few(app, &stamped, None).await?;
                Ok(registered.into_iter().map(|answer| answer.map(|(put, _)| put)).collect())
            }
            _ => self.register_many(app, &stamped).await,
        }
    }

    async fn patch_devices(
        &self,
        app: &AppKey,
        changes: &[(ClientId, ProfileChange)],
    ) -> Result<Vec<Result<Absent, PatchRefused>>, IndexError> {
        self.patch(app, changes).await
    }

    async fn register(
        &self,
        app: &AppKey,
        device: &DeviceWrite,
        only: Option<RegistrationEpoch>,
        now: UnixMillis,
    ) -> Result<Result<(Put, RegistrationEpoch), PutRefused>, IndexError> {
        let stamped = [(device.clone(), Stamp::new(now, self.serials.next()))];
        let registered = self.register_few(app, &stamped, only).await?;
        let none = || IndexError::Corrupt("a registration's answer is empty".to_owned());
        registered.into_iter().next().ok_or_else(none)
    }

    async fn device(&self, app: &AppKey, client: &ClientId) -> Result<Option<Device>, IndexError> {
        let read = Moment::now();
        let (mut stored, mut unreadable) = (None, None);
        let clients = std::slice::from_ref(client);
        find(&self.context, &self.keys, app, clients, |_, found| {
            match found {
                Ok(FoundDevice { record, .. }) => {
                    let codes = (record.codes, record.profile.to_codes());
                    stored = Some((record.target()?, codes));
                }
                // It may be the record of another client with the same hash.
                Err(error) => unreadable = Some(error),
            }
            Ok(())
        })
        .await?;
        let (target, codes) = match (stored, unreadable) {
            (Some(stored), _) => stored,
            (None, Some(error)) => return Err(error),
            (None, None) => return Ok(None),
        };
        let described = self.describe(app, &[codes], read).await?.into_iter().next().flatten();
        let (attributes, profile) = described.ok_or_else(unknown_code)?;
        let Target { client_id, transport, token, .. } = target;
        Ok(Some(Device { client_id, attributes, transport, token, profile }))
    }

    async fn remove_device(&self, app: &AppKey, client: &ClientId) -> Result<bool, IndexError> {
        self.remove_if(app, client, None).await
    }

    async fn remove_devices(
        &self,
        app: &AppKey,
        gone: &[GoneDevice],
        now: UnixMillis,
    ) -> Result<Vec<bool>, IndexError> {
        let clients: Vec<ClientId> = gone.iter().map(|gone| gone.client_id.clone()).collect();
        let mut stored: Vec<Option<Vec<u8>>> = vec![None; gone.len()];
        find(&self.context, &self.keys, app, &clients, |index, found| {
            // A record that cannot be read may belong to another client with the same hash.
            let record = match found {
                Err(IndexError::Corrupt(_)) => return Ok(()),
                found => found?.record,
            };
            if let (Some(gone), Some(stored)) = (gone.get(index), stored.get_mut(index))
                && gone.is_of(record.transport(), record.token(), record.stamp.renewed_at)
            {
                record.encode(stored.insert(Vec::new()))?;
            }
            Ok(())
        })
        .await?;
        let listed = gone.iter().zip(&stored).filter(|(_, stored)| stored.is_some());
        let listed: Vec<RemovedDevice> = listed.map(|(gone, _)| gone.removed(now)).collect();
        // Listed first, so that none is missing from the list if an answer is lost.
        self.list_gone(app, &listed, now).await?;
        // The script compares the whole record, so a device that has registered again since it was read stays.
        let mut removed = Vec::with_capacity(gone.len());
        for some in clients.into_iter().zip(stored).collect::<Vec<_>>().chunks(REMOVALS_AT_ONCE) {
            let removals = some.iter().map(async |(client, stored)| match stored {
                Some(record) => self.remove_if(app, client, Some(record)).await,
                None => Ok(false),
            });
            removed.extend(future::try_join_all(removals).await?);
        }
        Ok(removed)
    }

    async fn count_devices(&self, app: &AppKey) -> Result<u64, IndexError> {
        Ok(self.shard_sizes(app).await?.iter().map(|shard| shard.live).sum())
    }

    async fn extent(&self, app: &AppKey) -> Result<Vec<SlotRange>, IndexError> {
        let sizes = self.shard_sizes(app).await?;
        let range = |(shard, ShardSize { height, .. })| SlotRange { shard, from: 0, to: height };
        Ok((0..SHARDS).zip(sizes).map(range).filter(|range| range.to > 0).collect())
    }

    async fn carriers(&self, app: &AppKey) -> Result<Vec<CarrierExtent>, IndexError> {
        Ok(carrier_extents(&self.shard_sizes(app).await?))
    }

    async fn targets(
        &self,
        app: &AppKey,
        clients: &[ClientId],
        fields: TargetFields,
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError> {
        self.look_up(app, clients, fields).await
    }

    fn known_targets<'a>(
        &'a self,
        app: &'a AppKey,
        clients: &'a [ClientId],
        fields: TargetFields,
    ) -> BoxStream<'a, (usize, Result<Target, NoTarget>)> {
        self.look_up_by_part(app, clients, fields)
    }

    async fn scan(
        &self,
        app: &AppKey,
        range: SlotRange,
        selection: Selection<'_>,
        fields: TargetFields,
        limit: usize,
    ) -> Result<Scanned<Target>, IndexError> {
        self.scan_range(app, range, selection, fields, limit).await
    }

    async fn count_matching(
        &self,
        app: &AppKey,
        range: SlotRange,
        selection: Selection<'_>,
    ) -> Result<u64, IndexError> {
        self.count_range(app, range, selection).await
    }

    async fn count_slice(
        &self,
        app: &AppKey,
        range: SlotRange,
        targeting: &Targeting,
    ) -> Result<CountedSlice, IndexError> {
        self.count_segment(app, range, targeting).await
    }

    async fn tally_slice(
        &self,
        app: &AppKey,
        range: SlotRange,
        attribute: Attribute,
    ) -> Result<TalliedSlice, IndexError> {
        self.tally_segment(app, range, attribute).await
    }

    async fn list_devices(
        &self,
        app: &AppKey,
        range: SlotRange,
        limit: usize,
    ) -> Result<Scanned<Device>, IndexError> {
        self.list_range(app, range, limit).await
    }
}
