//! The devices of an app: registering, reading, scanning and removing them.
//!
//! - [`record`]: a device's record, and chunks of records. [`shard`]: the size of a shard.
//! - [`find`]: from client ids to records.
//! - [`registration`]: writing devices that are new or changed.
//! - [`scan`]: the devices of a slot range that match a targeting.

pub(super) mod find;
pub(super) mod record;
pub(super) mod registration;
pub(super) mod scan;
mod shard;

use async_trait::async_trait;
use futures::{future, stream::BoxStream};
use push_model::{
    app::AppKey,
    device::{Device, NoTarget, Target, TargetFields},
    gone::RemovedDevice,
    ids::{ClientId, UserId},
    profile::{DeviceWrite, Profile, ProfileChange},
    registration::{GoneDevice, RegistrationEpoch, Stamp},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use push_store::{IndexError, redis::connection::reply};

pub(super) use self::{
    find::{BucketCounts, Lookups, SlotCache, bucket_counts, lookups},
    record::Codes,
    registration::{Registrations, registrations},
    scan::{TableCache, table_cache},
};
use self::{
    find::{FoundDevice, find},
    registration::COALESCED_DEVICES,
    shard::{ShardSize, carrier_extents},
};
use super::{
    RedisIndex,
    dictionary::Moment,
    layout::{ClientHash, SHARDS},
};
use crate::{
    Absent, CarrierExtent, CountedSlice, Devices, PatchRefused, Put, PutRefused, Scanned,
    Selection, Users,
};

/// Removals that are in flight at the same time.
const REMOVALS_AT_ONCE: usize = 32;

impl RedisIndex {
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
        Ok(reply::number(remove.run(&self.quick).await?)? == Some(1))
    }

    /// A device from its record: the codes are replaced by the values of the dictionary.
    async fn device_of(
        &self,
        app: &AppKey,
        target: Target,
        codes: &Codes,
        read: Moment,
    ) -> Result<Device, IndexError> {
        let attributes = self.attributes(app, codes, read).await?;
        let Target { client_id, transport, token, .. } = target;
        Ok(Device { client_id, attributes, transport, token, profile: Profile::default() })
    }
}

#[async_trait]
impl Devices for RedisIndex {
    fn storage_order(&self, client: &ClientId) -> u64 {
        ClientHash::of(client).storage_order()
    }

    async fn patch_devices(
        &self,
        _: &AppKey,
        changes: &[(ClientId, ProfileChange)],
    ) -> Result<Vec<Result<Absent, PatchRefused>>, IndexError> {
        Ok(vec![Err(PatchRefused::Unknown); changes.len()])
    }

    async fn write_devices(
        &self,
        app: &AppKey,
        devices: &[DeviceWrite],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        let devices: Vec<Device> = devices.iter().map(|write| write.device.clone()).collect();
        let devices = &devices[..];
        match devices.len() {
            0 => Ok(Vec::new()),
            1..=COALESCED_DEVICES => {
                let registered = self.register_few(app, devices, now).await?;
                Ok(registered.into_iter().map(|answer| answer.map(|(put, _)| put)).collect())
            }
            _ => {
                let stamped =
                    devices.iter().map(|device| (device, Stamp::new(now, self.serials.next())));
                self.register_many(app, stamped.collect()).await
            }
        }
    }

    async fn register(
        &self,
        app: &AppKey,
        device: &DeviceWrite,
        now: UnixMillis,
    ) -> Result<Result<(Put, RegistrationEpoch), PutRefused>, IndexError> {
        let device = std::slice::from_ref(&device.device);
        let registered = self.register_few(app, device, now).await?;
        let none = || IndexError::Corrupt("a registration's answer is empty".to_owned());
        registered.into_iter().next().ok_or_else(none)
    }

    async fn device(&self, app: &AppKey, client: &ClientId) -> Result<Option<Device>, IndexError> {
        let read = Moment::now();
        let (mut stored, mut unreadable) = (None, None);
        let clients = std::slice::from_ref(client);
        find(&self.context, &self.keys, app, clients, |_, found| {
            match found {
                Ok(FoundDevice { record, .. }) => stored = Some((record.target()?, record.codes)),
                // It may be the record of another client with the same hash.
                Err(error) => unreadable = Some(error),
            }
            Ok(())
        })
        .await?;
        match (stored, unreadable) {
            (Some((target, codes)), _) => self.device_of(app, target, &codes, read).await.map(Some),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
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
        _: TargetFields,
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError> {
        self.look_up(app, clients).await
    }

    fn known_targets<'a>(
        &'a self,
        app: &'a AppKey,
        clients: &'a [ClientId],
        _: TargetFields,
    ) -> BoxStream<'a, (usize, Result<Target, NoTarget>)> {
        self.look_up_by_part(app, clients)
    }

    async fn scan(
        &self,
        app: &AppKey,
        range: SlotRange,
        Selection { carrier, targeting, registered_by }: Selection<'_>,
        _: TargetFields,
        limit: usize,
    ) -> Result<Scanned<Target>, IndexError> {
        self.scan_range(app, range, carrier, targeting, registered_by, limit).await
    }

    async fn count_matching(
        &self,
        app: &AppKey,
        range: SlotRange,
        Selection { carrier, targeting, registered_by }: Selection<'_>,
    ) -> Result<u64, IndexError> {
        self.count_range(app, range, carrier, targeting, registered_by).await
    }

    async fn count_slice(
        &self,
        app: &AppKey,
        range: SlotRange,
        targeting: &Targeting,
    ) -> Result<CountedSlice, IndexError> {
        self.count_segment(app, range, targeting).await
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

#[async_trait]
impl Users for RedisIndex {
    async fn user_devices(
        &self,
        _: &AppKey,
        users: &[UserId],
    ) -> Result<Vec<Vec<ClientId>>, IndexError> {
        Ok(vec![Vec::new(); users.len()])
    }

    fn limit_topics(&self, _: usize) {}
}
