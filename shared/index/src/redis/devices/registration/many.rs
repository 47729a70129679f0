//! Registering long lists of devices, as imports do: each shard's devices go to its script.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use push_model::{app::AppKey, device::Device, registration::Stamp};

use super::put::{PendingDevice, by_shard, put_in_shard, sort_for_writing};
use crate::{
    IndexError, Put, PutRefused,
    redis::{Context, RedisIndex, layout::ClientHash},
};

/// Script calls of one registration that are in flight at once.
const PUT_IN_FLIGHT: usize = 32;

impl RedisIndex {
    /// Registers many devices, each with this stamp, if it is new; one answer for each.
    pub(in crate::redis) async fn register_many(
        &self,
        app: &AppKey,
        devices: Vec<(&Device, Stamp)>,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        // Connected first, because cached dictionaries are only valid for the connections on which
        // they were read.
        self.bulk.connect().await?;
        let codes = self.intern(app, devices.iter().map(|(device, _)| &device.attributes)).await?;
        let mut results: Vec<Result<Put, PutRefused>> = Vec::with_capacity(devices.len());
        let mut pending = Vec::with_capacity(devices.len());
        for (number, ((device, stamp), codes)) in devices.into_iter().zip(codes).enumerate() {
            results.push(codes.map(|_| Put::Created));
            if let Ok(codes) = codes {
                let hash = ClientHash::of(&device.client_id);
                pending.push(PendingDevice { number, hash, device, codes, stamp });
            }
        }
        sort_for_writing(&mut pending);
        let context = Context { link: Arc::clone(&self.bulk), ..self.context.clone() };
        let mut puts = Vec::new();
        for shard in by_shard(&pending) {
            let put = put_in_shard(&context, &self.keys, app, shard);
            puts.push(async move { put.await.map(|answers| (shard, answers)) });
        }
        let done: Vec<_> = stream::iter(puts).buffer_unordered(PUT_IN_FLIGHT).try_collect().await?;
        for (shard, answers) in done {
            for (device, answer) in shard.iter().zip(answers) {
                if let Some(result) = results.get_mut(device.number) {
                    *result = answer.map(|(put, _)| put);
                }
            }
        }
        Ok(results)
    }
}
