//! Changing devices that are registered: what differs is written, and nothing else.
//!
//! A phone that registers with something new, after an update of its app for example, differs from
//! its record in one or two codes, and the lookup before has read where the record lies. So neither
//! the map nor the shard is read, devices of all shards of a server go in one call, and what is
//! written is the record and a byte for each code that differs. `register.lua` would write a byte
//! for every code, because it does not know which were there.
//!
//! The record may be another one by now, or lie elsewhere. The script writes a device only if its
//! slot still holds the record that was read, byte for byte; then the columns say what the record
//! says, because both are written in one step. What it leaves as it is, the caller registers as if
//! it were new. (A registration that was cut off behind the columns is mended when it is made again,
//! as [`scripts`](super::scripts) says, and not by another one.)

use futures::future;

use push_model::{app::AppKey, attributes::Attribute, time::UnixMillis};

use super::{
    Access,
    find::requests,
    keys::Keys,
    layout::{CHUNK_SLOTS, SEGMENT_SLOTS},
    put::Entry,
    record::{Codes, Record},
    reply,
};
use crate::IndexError;

/// The most bytes of records in one call, one record more excepted. For each of them the script reads
/// a chunk, which is some 16 times as much: about a millisecond of Redis.
const CALL_BYTES: usize = 64 * 1024;

/// A registered device as it was read.
#[derive(Debug)]
pub(super) struct Stored {
    slot: u32,
    record: Vec<u8>,
    codes: Codes,
    born: UnixMillis,
}

impl Stored {
    pub(super) fn of(slot: u32, record: &Record<'_>) -> Result<Self, IndexError> {
        let mut bytes = Vec::new();
        record.encode(&mut bytes)?;
        Ok(Self { slot, record: bytes, codes: record.codes, born: record.born })
    }
}

/// A registered device, and what it is to be.
pub(super) type Change<'a> = (Entry<'a>, Stored);

/// What the script takes of some devices.
#[derive(Default)]
struct Batch {
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
    devices: usize,
}

impl Batch {
    fn add(
        &mut self,
        app: &AppKey,
        keys: &Keys,
        (entry, stored): &Change<'_>,
    ) -> Result<(), IndexError> {
        let keys_of_shard = keys.shard(app, entry.place.shard);
        let segment = stored.slot / SEGMENT_SLOTS;
        let mut record = Vec::with_capacity(stored.record.len());
        Record::of(entry.device, entry.codes, stored.born).encode(&mut record)?;
        self.keys.push(keys_of_shard.chunk(stored.slot / CHUNK_SLOTS));
        let mut bytes = Vec::new();
        for ((attribute, before), after) in
            Attribute::ALL.into_iter().zip(stored.codes).zip(entry.codes)
        {
            let ([old_high, old_low], [high, low]) = (before.to_be_bytes(), after.to_be_bytes());
            if low != old_low {
                self.keys.push(keys_of_shard.low(attribute, segment));
                bytes.push(low);
            }
            if high != old_high {
                self.keys.push(keys_of_shard.high(attribute, segment));
                bytes.push(high);
            }
        }
        let place = |number: u32| number.to_string().into_bytes();
        let (in_chunk, in_planes) = (stored.slot % CHUNK_SLOTS, stored.slot % SEGMENT_SLOTS);
        self.args.extend([place(in_chunk), stored.record.clone(), record, place(in_planes), bytes]);
        self.devices += 1;
        Ok(())
    }

    /// Of each device whether it was changed; the others are as they were.
    async fn run(self, access: &Access) -> Result<Vec<bool>, IndexError> {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let mut call = access.scripts.change.call(&keys);
        for arg in &self.args {
            call.arg(arg);
        }
        let answers = reply::bytes(call.run(&access.link).await?)?.unwrap_or_default();
        if answers.len() == self.devices {
            Ok(answers.into_iter().map(|letter| letter == b'u').collect())
        } else {
            Err(IndexError::Corrupt("a change's answer has another length".to_owned()))
        }
    }
}

/// Changes devices of one app, which stand in order of their shards: of each whether it was changed.
/// One that was not is as it was before.
pub(super) async fn change(
    access: &Access,
    keys: &Keys,
    app: &AppKey,
    changes: &[Change<'_>],
) -> Vec<Result<bool, IndexError>> {
    let parts = requests(changes, |(entry, _)| entry.place.shard, access.link.is_cluster());
    let changed = parts
        .into_iter()
        .flat_map(|part| in_bounds(part, |(_, stored)| stored.record.len()))
        .map(|part| async move {
            let mut batch = Batch::default();
            let added = part.iter().try_for_each(|change| batch.add(app, keys, change));
            let changed = match added {
                Ok(()) => batch.run(access).await,
                Err(error) => Err(error),
            };
            match changed {
                Ok(changed) => changed.into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => part.iter().map(|_| Err(error.again())).collect(),
            }
        });
    future::join_all(changed).await.into_iter().flatten().collect()
}

/// Cuts a list where its items become too long for one call.
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
    fn a_call_has_no_more_bytes_than_it_may_and_one_item_more() {
        let items: Vec<usize> = (0..500).map(|n| n * 37 % 4200).collect();
        let parts: Vec<&[usize]> = in_bounds(&items, |bytes| *bytes).collect();
        assert_eq!(parts.concat(), items);
        assert!(parts.len() > 10);
        for part in parts {
            let all_but_last = &part[..part.len() - 1];
            assert!(all_but_last.iter().sum::<usize>() < CALL_BYTES);
        }
    }
}
