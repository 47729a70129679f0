//! Writing registered devices that have a profile or get one, with the script `rewrite.lua`.
//!
//! As [`change`](super::change), it writes a device only if its slot still holds the record that was read. It may
//! change everything: planes grow, topics get and lose members, and the carrier changes.

use futures::{StreamExt as _, stream};
use push_model::{
    app::AppKey,
    attributes::Attribute,
    registration::{Stamp, change_after},
};
use push_store::{
    IndexError,
    redis::{connection::reply, keys::Keys},
};

use super::{
    change::StoredDevice,
    put::{PendingDevice, PutFailure, in_time},
};
use crate::redis::{
    Context,
    devices::record::{Codes, Record},
    layout::carrier_byte,
};

/// The most devices of one call.
const CALL_DEVICES: usize = 32;
/// A call with this many bytes of profiles, before and after, gets no further device. A topic has two of them, and costs up
/// to 35 microseconds: as much as the change of a bitmap.
const CALL_PROFILE_BYTES: usize = 1024;

/// Script calls of one list that are in flight at the same time. They may take Redis long, and what comes after them on
/// their connection waits for all of them.
const REWRITES_IN_FLIGHT: usize = 4;

/// A device as it is stored and as it is to be.
pub(super) struct Rewrite {
    pub(super) shard: u32,
    slot: u32,
    before: Vec<u8>,
    after: Vec<u8>,
    /// About how many bytes of both are profiles.
    profiles: usize,
    /// The byte of the carrier column, if it changes.
    carrier: Vec<u8>,
    /// For each built-in attribute whose code changes its number and the code.
    codes: Vec<u8>,
    /// The time until which the codes may be written.
    not_after: u64,
}

impl Rewrite {
    /// Changes only the profile of a device.
    pub(super) fn of_profile(
        (shard, slot): (u32, u32),
        before: &Record<'_>,
        after: &Record<'_>,
        not_after: u64,
    ) -> Result<Self, IndexError> {
        let mut bytes = Vec::new();
        before.encode(&mut bytes)?;
        Self::of(shard, slot, bytes, (before.codes, after), not_after)
    }

    /// Registers a device that is registered.
    pub(super) fn of_device(
        device: &PendingDevice<'_>,
        stored: &StoredDevice,
    ) -> Result<Self, IndexError> {
        let now = device.stamp.renewed_at;
        let stamp = Stamp { renewed_at: now, ..stored.stamp };
        let change = change_after(stored.carrier, stored.change, device.device.carrier(), now);
        let after = Record::of(device.device, device.codes, stored.after.section(), stamp)
            .with_change(change);
        let keeps_carrier = after.carrier == stored.carrier && change == stored.change;
        let record = stored.record.clone();
        let (shard, not_after) = (device.hash.shard, device.not_after);
        let mut rewrite = Self::of(shard, stored.slot, record, (stored.codes, &after), not_after)?;
        if !keeps_carrier {
            let partition = change.map_or(after.carrier, |change| change.to);
            rewrite.carrier.push(carrier_byte(partition, change.map(|change| change.from)));
        }
        Ok(rewrite)
    }

    fn of(
        shard: u32,
        slot: u32,
        before: Vec<u8>,
        (codes_before, after): (Codes, &Record<'_>),
        not_after: u64,
    ) -> Result<Self, IndexError> {
        let mut codes = Vec::new();
        for ((attribute, before), code) in
            Attribute::ALL.into_iter().zip(codes_before).zip(after.codes)
        {
            if code != before {
                codes.push(u8::try_from(attribute.index()).unwrap_or(u8::MAX));
                codes.extend_from_slice(&code.to_be_bytes());
            }
        }
        let mut record = Vec::with_capacity(before.len());
        after.encode(&mut record)?;
        let profile = after.profile.stored_len();
        let beside = record.len().saturating_sub(profile);
        let profiles = profile + before.len().saturating_sub(beside);
        let carrier = Vec::new();
        Ok(Self { shard, slot, before, after: record, profiles, carrier, codes, not_after })
    }
}

/// Rewrites devices of one app, which are sorted by shard, each once: for each whether it was written. The others are
/// as they were, and have another record than was read.
pub(super) async fn rewrite(
    context: &Context,
    keys: &Keys,
    app: &AppKey,
    rewrites: &[Rewrite],
) -> Vec<Result<bool, PutFailure>> {
    let calls = in_calls(rewrites).map(|devices| async move {
        match call(context, keys, app, devices).await {
            Ok(written) => written.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(failure) => devices.iter().map(|_| Err(failure.duplicate())).collect(),
        }
    });
    let calls: Vec<_> = calls.collect();
    let answers: Vec<_> = stream::iter(calls).buffered(REWRITES_IN_FLIGHT).collect().await;
    answers.into_iter().flatten().collect()
}

/// Cuts devices into calls, each of one shard.
fn in_calls(rewrites: &[Rewrite]) -> impl Iterator<Item = &[Rewrite]> {
    let (mut devices, mut profiles) = (0, 0);
    rewrites.chunk_by(move |one, next| {
        (devices, profiles) = (devices + 1, profiles + one.profiles);
        let has_room = devices < CALL_DEVICES && profiles < CALL_PROFILE_BYTES;
        let goes_on = has_room && one.shard == next.shard;
        if !goes_on {
            (devices, profiles) = (0, 0);
        }
        goes_on
    })
}

async fn call(
    context: &Context,
    keys: &Keys,
    app: &AppKey,
    devices: &[Rewrite],
) -> Result<Vec<bool>, PutFailure> {
    let Some(shard) = devices.first().map(|device| device.shard) else { return Ok(Vec::new()) };
    let keys = keys.shard(app, shard);
    let mut call = context.scripts.rewrite.call(&[keys.base()]);
    for device in devices {
        call.arg(device.slot).arg(&device.before).arg(&device.after);
        call.arg(&device.carrier).arg(&device.codes);
    }
    call.arg(devices.iter().map(|device| device.not_after).min().unwrap_or_default());
    let letters = reply::bytes(in_time(call.run(&context.link).await?)?)?.unwrap_or_default();
    if letters.len() == devices.len() {
        return Ok(letters.into_iter().map(|letter| letter == b'u').collect());
    }
    let wrong = "the answer to a change of profiles has another length".to_owned();
    Err(IndexError::Corrupt(wrong).into())
}
