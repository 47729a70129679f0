//! Registering long lists of devices, as imports do: each shard's devices go to its script.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use push_model::{app::AppKey, device::Device, registration::Stamp};
use push_store::IndexError;

use super::put::{PendingDevice, PutFailure, by_shard, put_in_shard, sort_for_writing};
use crate::{
    Put, PutRefused,
    redis::{
        Context, RedisIndex,
        dictionary::{CACHED_FOR, Interned, WRITE_WITHIN},
        layout::ClientHash,
    },
};

/// Script calls of one registration that are in flight at the same time.
const PUT_IN_FLIGHT: usize = 32;

/// The most tries to write devices whose codes were read too long ago.
const TRIES: usize = 3;

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
        let context = Context { link: Arc::clone(&self.bulk), ..self.context.clone() };
        let mut results: Vec<Option<Result<Put, PutRefused>>> = vec![None; devices.len()];
        // The clock of a server that refused codes, which may differ from that of the dictionaries.
        let (mut within, mut clock) = (CACHED_FOR, 0);
        for _ in 0..TRIES {
            let left: Vec<usize> =
                results.iter().enumerate().filter(|(_, r)| r.is_none()).map(|(n, _)| n).collect();
            let devices = left.iter().filter_map(|number| Some((*number, devices.get(*number)?)));
            let attributes = devices.clone().map(|(_, (device, _))| &device.attributes);
            let Some(interned) = self.intern(app, attributes, within).await? else {
                let removed = |result: Option<_>| result.unwrap_or(Err(PutRefused::AppRemoved));
                return Ok(results.into_iter().map(removed).collect());
            };
            let Interned { devices: codes, not_after, .. } = interned;
            let not_after = not_after.max(clock + WRITE_WITHIN);
            let mut pending: Vec<_> = devices
                .clone()
                .zip(&codes)
                .map(|((number, (device, stamp)), (codes, _))| {
                    let hash = ClientHash::of(&device.client_id);
                    PendingDevice { number, hash, device, codes: *codes, stamp: *stamp, not_after }
                })
                .collect();
            sort_for_writing(&mut pending);
            let puts = by_shard(&pending).map(|shard| {
                let put = put_in_shard(&context, &self.keys, app, shard);
                async move { (shard, put.await) }
            });
            let puts: Vec<_> = puts.collect();
            let mut done = stream::iter(puts).buffer_unordered(PUT_IN_FLIGHT);
            let mut is_late = false;
            while let Some((shard, (answers, failure))) = done.next().await {
                for (device, answer) in shard.iter().zip(answers) {
                    if let Some(result) = results.get_mut(device.number) {
                        *result = Some(answer.map(|(put, _)| put));
                    }
                }
                match failure {
                    Some(PutFailure::Failed(error)) => return Err(error),
                    Some(PutFailure::Late(now)) => (is_late, clock) = (true, clock.max(now)),
                    None => {}
                }
            }
            for (number, (_, absent)) in left.iter().zip(codes) {
                if let Some(Some(Ok(put))) = results.get_mut(*number) {
                    *put = put.clone().without(absent.into());
                }
            }
            if !is_late {
                break;
            }
            within = Duration::ZERO;
        }
        let late = || IndexError::Unreachable(LATE.into());
        results.into_iter().map(|result| result.ok_or_else(late)).collect()
    }
}

/// Why devices are not registered whose codes were too old each time.
pub(super) const LATE: &str =
    "it takes too long to answer, or the clocks of its servers differ by more than half a minute";
