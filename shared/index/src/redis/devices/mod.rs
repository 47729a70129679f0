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
use push_model::{
    app::AppKey,
    device::{Device, NoTarget, Target},
    ids::ClientId,
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};

pub(super) use self::{
    find::{BucketCounts, Lookups, SlotCache, bucket_counts, lookups},
    record::Codes,
    registration::{Registrations, registrations},
    scan::{TableCache, table_cache},
};
use self::{
    find::{FoundDevice, find},
    registration::COALESCED_DEVICES,
    shard::ShardSize,
};
use super::{
    RedisIndex,
    connection::reply,
    dictionary::Moment,
    layout::{ClientHash, SHARDS},
};
use crate::{Devices, IndexError, Put, PutRefused, Scanned};

impl RedisIndex {
    /// A device from its record: the codes are replaced by the values of the dictionary.
    async fn device_of(
        &self,
        app: &AppKey,
        target: Target,
        codes: &Codes,
        read: Moment,
    ) -> Result<Device, IndexError> {
        let attributes = self.attributes(app, codes, read).await?;
        let Target { client_id, transport, token } = target;
        Ok(Device { client_id, attributes, transport, token })
    }
}

#[async_trait]
impl Devices for RedisIndex {
    fn storage_order(&self, client: &ClientId) -> u64 {
        ClientHash::of(client).storage_order()
    }

    async fn put_devices(
        &self,
        app: &AppKey,
        devices: &[Device],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        match devices.len() {
            0 => Ok(Vec::new()),
            1..=COALESCED_DEVICES => self.register_few(app, devices, now).await,
            _ => {
                self.register_many(app, devices.iter().map(|device| (device, now)).collect()).await
            }
        }
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
        let ClientHash { shard, tag } = ClientHash::of(client);
        let keys = self.keys.shard(app, shard);
        let mut remove = self.scripts.remove.call(&[keys.base()]);
        let answer = remove.arg(&tag[..]).arg(client.as_str()).run(&self.quick).await?;
        Ok(reply::number(answer)? == Some(1))
    }

    async fn count_devices(&self, app: &AppKey) -> Result<u64, IndexError> {
        Ok(self.shard_sizes(app).await?.iter().map(|shard| shard.live).sum())
    }

    async fn extent(&self, app: &AppKey) -> Result<Vec<SlotRange>, IndexError> {
        let sizes = self.shard_sizes(app).await?;
        let range = |(shard, ShardSize { height, .. })| SlotRange { shard, from: 0, to: height };
        Ok((0..SHARDS).zip(sizes).map(range).filter(|range| range.to > 0).collect())
    }

    async fn targets(
        &self,
        app: &AppKey,
        clients: &[ClientId],
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError> {
        self.look_up(app, clients).await
    }

    async fn scan(
        &self,
        app: &AppKey,
        range: SlotRange,
        targeting: &Targeting,
        registered_by: UnixMillis,
        limit: usize,
    ) -> Result<Scanned<Target>, IndexError> {
        self.scan_range(app, range, targeting, registered_by, limit).await
    }

    async fn count_matching(
        &self,
        app: &AppKey,
        range: SlotRange,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Result<u64, IndexError> {
        self.count_range(app, range, targeting, registered_by).await
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
