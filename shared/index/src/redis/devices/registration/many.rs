//! Registering long lists of devices, as imports do: each shard's devices go to its script. Devices that are registered and
//! have a profile, before or after, are registered as those of short lists are.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use push_model::{app::AppKey, profile::DeviceWrite, registration::Stamp};
use push_store::IndexError;

use super::{
    COALESCED_DEVICES,
    put::{PendingDevice, PutFailure, by_shard, put_in_shard, sort_for_writing},
};
use crate::{
    Absent, Put, PutRefused,
    redis::{
        Context, RedisIndex,
        devices::profile::Section,
        dictionary::{CACHED_FOR, Interned, WRITE_WITHIN},
        layout::ClientHash,
        users::{AppUsers, Pair},
    },
};

/// Script calls of one registration that are in flight at the same time.
const PUT_IN_FLIGHT: usize = 32;

/// The most tries to write devices whose codes were read too long ago.
const TRIES: usize = 3;

/// The result of a device; none until it has one.
type Answer = Option<Result<Put, PutRefused>>;

impl RedisIndex {
    /// Registers many devices, each with this stamp, if it is new; one answer for each.
    pub(in crate::redis) async fn register_many(
        &self,
        app: &AppKey,
        devices: &[(DeviceWrite, Stamp)],
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        // Connected first, because cached dictionaries are only valid for the connections on which
        // they were read.
        self.bulk.connect().await?;
        let mut results: Vec<Answer> = vec![None; devices.len()];
        // The clock of a server that refused codes, which may differ from that of the dictionaries.
        let (mut within, mut clock) = (CACHED_FOR, 0);
        // Those whose records must be read first.
        let mut known: Vec<usize> = Vec::new();
        for _ in 0..TRIES {
            let open = |number: &usize| {
                results.get(*number).is_some_and(Option::is_none) && !known.contains(number)
            };
            let left: Vec<usize> = (0..devices.len()).filter(open).collect();
            let late = self.put_new(app, devices, &left, (within, clock), &mut results, &mut known);
            let Some(late) = late.await? else {
                let removed = |result: Answer| result.unwrap_or(Err(PutRefused::AppRemoved));
                return Ok(results.into_iter().map(removed).collect());
            };
            if late == 0 {
                break;
            }
            (within, clock) = (Duration::ZERO, late.max(clock));
        }
        known.sort_unstable();
        self.register_known(app, devices, &known, &mut results).await?;
        let late = || IndexError::Unreachable(LATE.into());
        results.into_iter().map(|result| result.ok_or_else(late)).collect()
    }

    /// Registers devices that have no result yet with the scripts of their shards. Answers the clock of a server for which
    /// some of the codes were too old, else 0; none if the app was removed.
    async fn put_new(
        &self,
        app: &AppKey,
        devices: &[(DeviceWrite, Stamp)],
        left: &[usize],
        (within, clock): (Duration, u64),
        results: &mut [Answer],
        known: &mut Vec<usize>,
    ) -> Result<Option<u64>, IndexError> {
        let context = Context { link: Arc::clone(&self.bulk), ..self.context.clone() };
        let writes = left.iter().filter_map(|number| devices.get(*number));
        let attributes = writes.clone().map(|(write, _)| &write.device.attributes);
        let Some(interned) = self.intern(app, attributes, within).await? else { return Ok(None) };
        let Interned { devices: codes, dictionaries, not_after } = interned;
        let changes = writes.clone().map(|(write, _)| &write.change);
        let Some(changes) = self.intern_changes(app, &dictionaries, changes).await? else {
            return Ok(None);
        };
        let not_after = not_after.max(clock + WRITE_WITHIN);
        let fresh: Vec<_> =
            changes.iter().map(|coded| coded.change.apply(Section::default())).collect();
        let mut absent: Vec<Absent> = codes
            .iter()
            .zip(&changes)
            .zip(&fresh)
            .map(|(((_, attributes), coded), (_, topics_beyond))| Absent {
                attributes: *attributes,
                topics_beyond: *topics_beyond,
                ..coded.absent.clone()
            })
            .collect();
        let mut pending: Vec<_> = writes
            .zip(&codes)
            .zip(changes.iter().zip(&fresh))
            .enumerate()
            .map(|(number, (((write, stamp), (codes, _)), (coded, (fresh, beyond))))| {
                PendingDevice {
                    number,
                    hash: ClientHash::of(&write.device.client_id),
                    device: &write.device,
                    codes: *codes,
                    change: &coded.change,
                    profile: fresh.section(),
                    beyond: *beyond,
                    stamp: *stamp,
                    not_after,
                    only: None,
                }
            })
            .collect();
        sort_for_writing(&mut pending);
        let several = in_turn(&pending);
        pending.retain(|device| !several.contains(&device.number));
        known.extend(several.iter().filter_map(|number| left.get(*number)));
        let users = AppUsers { context: &context, keys: &self.keys, app };
        let with_user: Vec<&mut PendingDevice<'_>> =
            pending.iter_mut().filter(|device| !device.profile.user().is_empty()).collect();
        let pairs: Vec<Pair<'_>> = with_user
            .iter()
            .map(|device| (device.profile.user(), &device.device.client_id))
            .collect();
        for (device, added) in with_user.into_iter().zip(users.add(&pairs).await) {
            if !added? {
                device.profile = device.profile.without_user();
                absent.get_mut(device.number).into_iter().for_each(|absent| absent.user_id = true);
            }
        }
        let puts = by_shard(&pending).map(|shard| {
            let put = put_in_shard(&context, &self.keys, app, shard);
            async move { (shard, put.await) }
        });
        let puts: Vec<_> = puts.collect();
        let mut done = stream::iter(puts).buffer_unordered(PUT_IN_FLIGHT);
        let mut late = 0;
        while let Some((shard, (answers, failure))) = done.next().await {
            for (device, answer) in shard.iter().zip(answers) {
                let Some(number) = left.get(device.number).copied() else { continue };
                let Some(answer) = answer else {
                    known.push(number);
                    continue;
                };
                if let (Some(result), Some(absent)) =
                    (results.get_mut(number), absent.get(device.number))
                {
                    *result = Some(answer.map(|(put, _)| put.without(absent.clone())));
                }
            }
            match failure {
                Some(PutFailure::Failed(error)) => return Err(error),
                Some(PutFailure::Late(now)) => late = late.max(now),
                None => {}
            }
        }
        Ok(Some(late))
    }

    /// Registers devices that are registered. Those of one client stay in their order.
    async fn register_known(
        &self,
        app: &AppKey,
        devices: &[(DeviceWrite, Stamp)],
        known: &[usize],
        results: &mut [Answer],
    ) -> Result<(), IndexError> {
        // In one order at a time: calls of a stream are made in parallel, and would not keep it.
        for numbers in known.chunks(COALESCED_DEVICES * PUT_IN_FLIGHT) {
            let mut calls: Vec<Vec<usize>> = vec![Vec::new(); PUT_IN_FLIGHT];
            for number in numbers {
                let Some((write, _)) = devices.get(*number) else { continue };
                let [place, ..] = ClientHash::of(&write.device.client_id).tag;
                if let Some(call) = calls.get_mut(usize::from(place) % PUT_IN_FLIGHT) {
                    call.push(*number);
                }
            }
            let calls = calls.into_iter().map(async |numbers| {
                let mut answers = Vec::with_capacity(numbers.len());
                for some in numbers.chunks(COALESCED_DEVICES) {
                    let writes: Vec<_> =
                        some.iter().filter_map(|number| devices.get(*number)).cloned().collect();
                    answers.extend(self.register_few(app, &writes, None).await?);
                }
                Ok::<_, IndexError>(numbers.into_iter().zip(answers).collect::<Vec<_>>())
            });
            let mut calls = stream::iter(calls).buffer_unordered(PUT_IN_FLIGHT);
            while let Some(answers) = calls.next().await {
                for (number, answer) in answers? {
                    if let Some(result) = results.get_mut(number) {
                        *result = Some(answer.map(|(put, _)| put));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The numbers of devices whose client is named several times, if a profile is among them: what one of them writes depends
/// on what the one before it leaves. The devices are sorted.
fn in_turn(devices: &[PendingDevice<'_>]) -> HashSet<usize> {
    let clients = devices.chunk_by(|a, b| a.hash == b.hash);
    let several = clients
        .filter(|same| same.len() > 1 && same.iter().any(|device| !device.profile.is_empty()));
    several.flatten().map(|device| device.number).collect()
}

/// Why devices are not registered whose codes were too old each time.
pub(super) const LATE: &str =
    "it takes too long to answer, or the clocks of its servers differ by more than half a minute";
