//! Changing devices that are registered and keep their profile: only what differs is written.
//!
//! A phone that registers with something new, for example after an update of its app, differs from
//! its record in one or two codes, and the lookup before has read where the record is. So neither
//! the map nor the shard is read, the devices of all shards of a server go in one call, and only
//! the record and one byte for each code that differs are written. `register.lua` would write a
//! byte for every code, because it does not know the codes of before.
//!
//! The record may have changed or moved since it was read. The script writes a device only if its
//! slot still holds the record that was read, byte for byte. Then the columns agree with that
//! record, because record and columns are always written in one step. A device that the script
//! leaves unchanged is registered by the caller as if it were new. (A registration that was cut off
//! between columns and record is repaired when it is made again, as
//! [the rules for scripts](push_store::redis::script) say, not by a change of the same device.)

use futures::future;
use push_model::{
    app::AppKey,
    attributes::Attribute,
    device::Carrier,
    filter::Column,
    registration::{CarrierChange, RegistrationEpoch, Stamp, change_after},
};
use push_store::{
    IndexError,
    redis::{connection::reply, keys::Keys},
};

use super::put::{PendingDevice, PutFailure, in_time};
use crate::redis::{
    Context,
    devices::{
        find::requests,
        profile::ProfileCodes,
        record::{Codes, Record},
    },
    layout::{CHUNK_SLOTS, SEGMENT_SLOTS},
};

/// Once a call holds this many bytes, no record is added to it. For each record the script reads a
/// chunk, which is about 16 times as long, so such a call takes about a millisecond of Redis time.
const CALL_BYTES: usize = 64 * 1024;

/// The stored record of a registered device, as it was read.
#[derive(Debug)]
pub(super) struct StoredDevice {
    pub(super) slot: u32,
    pub(super) record: Vec<u8>,
    pub(super) codes: Codes,
    pub(super) stamp: Stamp,
    pub(super) carrier: Carrier,
    pub(super) change: Option<CarrierChange>,
    /// The user; empty if there is none.
    pub(super) user: Box<str>,
    /// The profile after the registration.
    pub(super) after: ProfileCodes,
    had_profile: bool,
    pub(super) keeps_profile: bool,
    /// The number of topics that the device does not get, because it has as many as it may have.
    pub(super) beyond: usize,
}

impl StoredDevice {
    pub(super) fn of(
        slot: u32,
        record: &Record<'_>,
        (after, beyond): (ProfileCodes, usize),
    ) -> Result<Self, IndexError> {
        let mut bytes = Vec::new();
        record.encode(&mut bytes)?;
        let Record { codes, stamp, carrier, change, profile, .. } = *record;
        let (had_profile, keeps_profile) = (!profile.is_empty(), after.section() == profile);
        let (record, user) = (bytes, profile.user().into());
        Ok(Self {
            slot,
            record,
            codes,
            stamp,
            carrier,
            change,
            user,
            after,
            had_profile,
            keeps_profile,
            beyond,
        })
    }

    /// Returns true if the device has a profile or gets one.
    pub(super) fn has_profile(&self) -> bool {
        self.had_profile || !self.keeps_profile
    }

    /// Returns true if the carrier column of the device stays as it is: the script does not write it.
    pub(super) fn keeps_carrier(&self, device: &PendingDevice<'_>) -> bool {
        let (carrier, now) = (device.device.carrier(), device.stamp.renewed_at);
        carrier == self.carrier
            && change_after(self.carrier, self.change, carrier, now) == self.change
    }

    /// Returns true if the high bytes of all codes stay as they are: the script makes no plane longer, and a plane of high
    /// bytes is only as long as devices need it.
    pub(super) fn keeps_high_bytes(&self, device: &PendingDevice<'_>) -> bool {
        self.codes.iter().zip(device.codes).all(|(before, after)| before >> 8 == after >> 8)
    }

    pub(super) fn epoch(&self) -> RegistrationEpoch {
        self.stamp.epoch()
    }
}

/// A device as it is to be, and as it is stored.
pub(super) type Change<'a> = (PendingDevice<'a>, StoredDevice);

/// Changes of devices, encoded as keys and arguments of the script.
#[derive(Default)]
struct ChangeRequest {
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
    count: usize,
    /// The time until which the codes of all of them may be written.
    not_after: Option<u64>,
}

impl ChangeRequest {
    fn add(
        &mut self,
        app: &AppKey,
        keys: &Keys,
        (device, stored): &Change<'_>,
    ) -> Result<(), IndexError> {
        let keys_of_shard = keys.shard(app, device.hash.shard);
        let segment = stored.slot / SEGMENT_SLOTS;
        let mut record = Vec::with_capacity(stored.record.len());
        let stamp = if stored.carrier.kind().is_renewed() {
            Stamp { renewed_at: device.stamp.renewed_at, ..stored.stamp }
        } else {
            stored.stamp
        };
        Record::of(device.device, device.codes, stored.after.section(), stamp)
            .with_change(stored.change)
            .encode(&mut record)?;
        self.keys.push(keys_of_shard.chunk(stored.slot / CHUNK_SLOTS));
        let mut bytes = Vec::new();
        for ((attribute, before), after) in
            Attribute::ALL.into_iter().zip(stored.codes).zip(device.codes)
        {
            let ([old_high, old_low], [high, low]) = (before.to_be_bytes(), after.to_be_bytes());
            if low != old_low {
                self.keys.push(keys_of_shard.low(Column::BuiltIn(attribute), segment));
                bytes.push(low);
            }
            if high != old_high {
                self.keys.push(keys_of_shard.high(Column::BuiltIn(attribute), segment));
                bytes.push(high);
            }
        }
        let digits = |number: u32| number.to_string().into_bytes();
        let (in_chunk, in_planes) = (stored.slot % CHUNK_SLOTS, stored.slot % SEGMENT_SLOTS);
        self.args.extend([
            digits(in_chunk),
            stored.record.clone(),
            record,
            digits(in_planes),
            bytes,
        ]);
        self.count += 1;
        let not_after =
            self.not_after.map_or(device.not_after, |until| until.min(device.not_after));
        self.not_after = Some(not_after);
        Ok(())
    }

    /// Runs the script: for each device whether it was changed. The others are as they were.
    async fn run(self, context: &Context) -> Result<Vec<bool>, PutFailure> {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let mut call = context.scripts.change.call(&keys);
        for arg in &self.args {
            call.arg(arg);
        }
        call.arg(self.not_after.unwrap_or_default());
        let answers = reply::bytes(in_time(call.run(&context.link).await?)?)?.unwrap_or_default();
        if answers.len() == self.count {
            Ok(answers.into_iter().map(|letter| letter == b'u').collect())
        } else {
            let wrong = "a change's answer has another length".to_owned();
            Err(IndexError::Corrupt(wrong).into())
        }
    }
}

/// Changes devices of one app, which are sorted by shard: for each whether it was changed. A device
/// that was not changed is stored as before.
pub(super) async fn change(
    context: &Context,
    keys: &Keys,
    app: &AppKey,
    changes: &[Change<'_>],
) -> Vec<Result<bool, PutFailure>> {
    let requests = requests(changes, |(device, _)| device.hash.shard, context.link.is_cluster());
    let changed = requests
        .into_iter()
        .flat_map(|changes| in_bounds(changes, |(_, stored)| stored.record.len()))
        .map(|changes| async move {
            let mut request = ChangeRequest::default();
            let added = changes.iter().try_for_each(|change| request.add(app, keys, change));
            let changed = match added {
                Ok(()) => request.run(context).await,
                Err(error) => Err(error.into()),
            };
            match changed {
                Ok(changed) => changed.into_iter().map(Ok).collect::<Vec<_>>(),
                Err(failure) => changes.iter().map(|_| Err(failure.duplicate())).collect(),
            }
        });
    future::join_all(changed).await.into_iter().flatten().collect()
}

/// Cuts a list into calls, behind the item with which a call reaches [`CALL_BYTES`].
fn in_bounds<T>(items: &[T], bytes_of: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut bytes = 0;
    items.chunk_by(move |item, _| {
        bytes += bytes_of(item);
        let goes_on = bytes < CALL_BYTES;
        if !goes_on {
            bytes = 0;
        }
        goes_on
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_cut_behind_the_item_with_which_it_reaches_its_limit() {
        let items: Vec<usize> = (0..500).map(|n| n * 37 % 4200).collect();
        let calls: Vec<&[usize]> = in_bounds(&items, |bytes| *bytes).collect();
        assert_eq!(calls.concat(), items);
        assert!(calls.len() > 10);
        for call in calls {
            let all_but_last = &call[..call.len() - 1];
            assert!(all_but_last.iter().sum::<usize>() < CALL_BYTES);
        }
    }
}
