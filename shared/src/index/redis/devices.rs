//! Registering, reading and removing devices by their client ids.

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, future, stream};

use super::{
    RedisIndex,
    keys::ShardKeys,
    layout::{self, Place, SHARDS},
    lookup::find,
    record::{Codes, Record, time_bytes},
    reply,
};
use crate::{
    attributes::Attribute,
    device::{Device, NoTarget, Target},
    ids::ClientId,
    index::{AppKey, Devices, IndexError, Page, Put, PutRefused, Slice},
    targeting::Targeting,
    time::UnixMillis,
};

/// The most devices that one script call registers: about a millisecond of Redis.
const PUT_DEVICES: usize = 256;
/// The most bytes of records in one script call, one record more excepted.
const PUT_BYTES: usize = 256 * 1024;
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

/// A device that is to be registered.
struct Entry<'a> {
    /// Which of the caller's devices it is.
    number: usize,
    place: Place,
    device: &'a Device,
    codes: Codes,
}

/// Devices of one shard, encoded for the script.
#[derive(Default)]
struct Batch {
    tags: Vec<u8>,
    records: Vec<u8>,
    /// The low bytes of the codes, then the high bytes.
    planes: [[Vec<u8>; Attribute::COUNT]; 2],
    devices: usize,
}

impl Batch {
    /// As many of the entries as one call takes, from the first on.
    fn of(entries: &[Entry<'_>], now: UnixMillis) -> Result<Self, IndexError> {
        let mut batch = Self::default();
        let [low, high] = &mut batch.planes;
        for Entry { place, device, codes, .. } in entries {
            if batch.devices == PUT_DEVICES || batch.records.len() >= PUT_BYTES {
                break;
            }
            batch.devices += 1;
            batch.tags.extend_from_slice(&place.tag);
            Record::of(device, *codes, now).encode(&mut batch.records)?;
            for ((low, high), code) in low.iter_mut().zip(&mut *high).zip(codes) {
                let [high_byte, low_byte] = code.to_be_bytes();
                low.push(low_byte);
                high.push(high_byte);
            }
        }
        for plane in high {
            if plane.iter().all(|byte| *byte == 0) {
                plane.clear();
            }
        }
        Ok(batch)
    }
}

impl RedisIndex {
    /// Registers devices of one shard; gives them back with a letter for each. A batch is encoded
    /// when its turn comes, so that Redis works on one shard while the next is made ready.
    async fn put_in_shard<'a>(
        &self,
        app: &AppKey,
        entries: &'a [Entry<'a>],
        now: UnixMillis,
    ) -> Result<(&'a [Entry<'a>], Vec<u8>), IndexError> {
        let mut answers = Vec::with_capacity(entries.len());
        while let Some((first, _)) = entries[answers.len()..].split_first() {
            let batch = Batch::of(&entries[answers.len()..], now)?;
            answers.extend(self.put_batch(app, first.place.shard, &batch, now).await?);
        }
        Ok((entries, answers))
    }

    async fn put_batch(
        &self,
        app: &AppKey,
        shard: u32,
        batch: &Batch,
        now: UnixMillis,
    ) -> Result<Vec<u8>, IndexError> {
        let keys = self.keys.shard(app, shard);
        let mut call = self.scripts.register.call(&[keys.base()]);
        call.arg(&time_bytes(now)[..]).arg(&batch.tags).arg(&batch.records);
        for plane in batch.planes.iter().flatten() {
            call.arg(plane);
        }
        let link = if batch.devices == 1 { &self.quick } else { &self.bulk };
        let answers = reply::bytes(call.run(link).await?)?.unwrap_or_default();
        if answers.len() == batch.devices {
            Ok(answers)
        } else {
            Err(IndexError::Corrupt("a registration's answer has another length".to_owned()))
        }
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
        if devices.len() > 1 {
            // What is known of the dictionaries depends on the connections.
            self.bulk.connect().await?;
        }
        let codes = self.intern(app, devices.iter().map(|device| &device.attributes)).await?;
        let mut results: Vec<Result<Put, PutRefused>> = Vec::with_capacity(devices.len());
        let mut entries = Vec::with_capacity(devices.len());
        for (number, (device, codes)) in devices.iter().zip(codes).enumerate() {
            results.push(codes.map(|_| Put::Created));
            if let Ok(codes) = codes {
                let place = Place::of(&device.client_id);
                entries.push(Entry { number, place, device, codes });
            }
        }
        // Neighbours in the map share a call, and with it the reading and writing of a bucket. The
        // sort is stable and calls for one shard follow each other: of two entries for one client
        // the later must win.
        entries.sort_by_key(|entry| entry.place.storage_order());
        let mut puts = Vec::new();
        for entries in entries.chunk_by(|a, b| a.place.shard == b.place.shard) {
            puts.push(self.put_in_shard(app, entries, now));
        }
        let done: Vec<_> = stream::iter(puts).buffer_unordered(PUT_IN_FLIGHT).try_collect().await?;
        for (entries, answers) in done {
            for (entry, answer) in entries.iter().zip(answers) {
                if let Some(result) = results.get_mut(entry.number) {
                    *result = match answer {
                        b'c' => Ok(Put::Created),
                        b'u' => Ok(Put::Updated),
                        b'g' => Err(PutRefused::AppRemoved),
                        _ => Err(PutRefused::IndexFull),
                    };
                }
            }
        }
        Ok(results)
    }

    async fn device(&self, app: &AppKey, client: &ClientId) -> Result<Option<Device>, IndexError> {
        let mut found = None;
        let clients = std::slice::from_ref(client);
        find(&self.access, &self.keys, app, clients, |_, record| {
            let record = record?;
            found = Some((record.target()?, record.codes));
            Ok(())
        })
        .await?;
        match found {
            Some((target, codes)) => self.device_of(app, target, &codes).await.map(Some),
            None => Ok(None),
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

    async fn extent(&self, app: &AppKey) -> Result<Vec<Slice>, IndexError> {
        let shards = self.shards(app).await?;
        let slice = |(shard, Shard { height, .. })| Slice { shard, from: 0, to: height };
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
        slice: Slice,
        targeting: &Targeting,
        registered_by: UnixMillis,
        limit: usize,
    ) -> Result<Page<Target>, IndexError> {
        self.scan_page(app, slice, targeting, registered_by, limit).await
    }

    async fn count_matching(
        &self,
        app: &AppKey,
        slice: Slice,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Result<u64, IndexError> {
        self.count_slice(app, slice, targeting, registered_by).await
    }

    async fn list_devices(
        &self,
        app: &AppKey,
        slice: Slice,
        limit: usize,
    ) -> Result<Page<Device>, IndexError> {
        self.list_page(app, slice, limit).await
    }
}
