//! Registering, reading and removing devices by their client ids.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, future, stream};
use push_model::{
    app::AppKey,
    device::{Device, NoTarget, Target},
    ids::ClientId,
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};

use super::{
    Access, RedisIndex,
    find::{Found, find},
    keys::ShardKeys,
    layout::{self, Place, SHARDS},
    put::{Entry, by_shard, put_in_order, put_in_shard},
    registrations::GROUPED_DEVICES,
    reply,
};
use crate::{Devices, IndexError, Page, Put, PutRefused};

/// Script calls of one registration that are under way at once.
const PUT_IN_FLIGHT: usize = 32;

/// What a shard says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shard {
    /// Slots that were ever taken.
    pub(super) height: u32,
    /// Devices.
    live: u64,
}

impl RedisIndex {
    /// Registers many devices, one answer for each.
    async fn register_many(
        &self,
        app: &AppKey,
        devices: &[Device],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        // What is known of the dictionaries depends on the connections.
        self.bulk.connect().await?;
        let codes = self.intern(app, devices.iter().map(|device| &device.attributes)).await?;
        let mut results: Vec<Result<Put, PutRefused>> = Vec::with_capacity(devices.len());
        let mut entries = Vec::with_capacity(devices.len());
        for (number, (device, codes)) in devices.iter().zip(codes).enumerate() {
            results.push(codes.map(|_| Put::Created));
            if let Ok(codes) = codes {
                let place = Place::of(&device.client_id);
                entries.push(Entry { number, place, device, codes, now });
            }
        }
        put_in_order(&mut entries);
        let access = Access { link: Arc::clone(&self.bulk), ..self.access.clone() };
        let mut puts = Vec::new();
        for shard in by_shard(&entries) {
            let put = put_in_shard(&access, &self.keys, app, shard);
            puts.push(async move { put.await.map(|answers| (shard, answers)) });
        }
        let done: Vec<_> = stream::iter(puts).buffer_unordered(PUT_IN_FLIGHT).try_collect().await?;
        for (shard, answers) in done {
            for (entry, answer) in shard.iter().zip(answers) {
                if let Some(result) = results.get_mut(entry.number) {
                    *result = answer;
                }
            }
        }
        Ok(results)
    }

    /// What every shard says of itself.
    async fn shards(&self, app: &AppKey) -> Result<Vec<Shard>, IndexError> {
        let keys = (0..SHARDS).map(|shard| self.keys.shard(app, shard));
        future::try_join_all(keys.map(async |keys| self.shard(&keys).await)).await
    }

    /// What a shard says of itself; one that is being removed is empty for readers.
    pub(super) async fn shard(&self, keys: &ShardKeys) -> Result<Shard, IndexError> {
        let mut get = redis::cmd("HMGET");
        get.arg(keys.base()).arg(&["height", "live", "layout", "gone"]);
        let values = reply::list(self.quick.read(&get).await?)?;
        let mut values = values.into_iter().map(reply::number);
        let mut next = || values.next().unwrap_or(Ok(None));
        let (height, live, layout, gone) = (next()?, next()?, next()?, next()?);
        if gone.is_some() {
            return Ok(Shard::default());
        }
        let (height, live) = (height.unwrap_or(0), live.unwrap_or(0));
        layout::check(height, layout)?;
        Ok(Shard { height: u32::try_from(height).unwrap_or(u32::MAX), live })
    }
}

#[async_trait]
impl Devices for RedisIndex {
    fn storage_order(&self, client: &ClientId) -> u64 {
        Place::of(client).storage_order()
    }

    async fn put_devices(
        &self,
        app: &AppKey,
        devices: &[Device],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        match devices.len() {
            0 => Ok(Vec::new()),
            1..=GROUPED_DEVICES => self.register(app, devices, now).await,
            _ => self.register_many(app, devices, now).await,
        }
    }

    async fn device(&self, app: &AppKey, client: &ClientId) -> Result<Option<Device>, IndexError> {
        let (mut stored, mut unreadable) = (None, None);
        let clients = std::slice::from_ref(client);
        find(&self.access, &self.keys, app, clients, |_, found| {
            match found {
                Ok(Found { record, .. }) => stored = Some((record.target()?, record.codes)),
                // It may be of another client with the same hash.
                Err(error) => unreadable = Some(error),
            }
            Ok(())
        })
        .await?;
        match (stored, unreadable) {
            (Some((target, codes)), _) => self.device_of(app, target, &codes).await.map(Some),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    async fn remove_device(&self, app: &AppKey, client: &ClientId) -> Result<bool, IndexError> {
        let Place { shard, tag } = Place::of(client);
        let keys = self.keys.shard(app, shard);
        let mut remove = self.scripts.remove.call(&[keys.base()]);
        let answer = remove.arg(&tag[..]).arg(client.as_str()).run(&self.quick).await?;
        Ok(reply::number(answer)? == Some(1))
    }

    async fn count_devices(&self, app: &AppKey) -> Result<u64, IndexError> {
        Ok(self.shards(app).await?.iter().map(|shard| shard.live).sum())
    }

    async fn extent(&self, app: &AppKey) -> Result<Vec<SlotRange>, IndexError> {
        let shards = self.shards(app).await?;
        let slice = |(shard, Shard { height, .. })| SlotRange { shard, from: 0, to: height };
        Ok((0..SHARDS).zip(shards).map(slice).filter(|slice| slice.to > 0).collect())
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
        slice: SlotRange,
        targeting: &Targeting,
        registered_by: UnixMillis,
        limit: usize,
    ) -> Result<Page<Target>, IndexError> {
        self.scan_page(app, slice, targeting, registered_by, limit).await
    }

    async fn count_matching(
        &self,
        app: &AppKey,
        slice: SlotRange,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Result<u64, IndexError> {
        self.count_slice(app, slice, targeting, registered_by).await
    }

    async fn list_devices(
        &self,
        app: &AppKey,
        slice: SlotRange,
        limit: usize,
    ) -> Result<Page<Device>, IndexError> {
        self.list_page(app, slice, limit).await
    }
}
