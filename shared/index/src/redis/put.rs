//! Writing devices: what the script `register.lua` is handed, and what it answers.

use push_model::{app::AppKey, attributes::Attribute, device::Device, time::UnixMillis};

use super::{
    Access,
    keys::{Keys, ShardKeys},
    layout::Place,
    record::{Codes, Record, time_bytes},
    reply,
};
use crate::{IndexError, Put, PutRefused};

/// The most devices that one script call registers: about a millisecond of Redis.
const PUT_DEVICES: usize = 256;
/// The most bytes of records in one script call, one record more excepted.
const PUT_BYTES: usize = 256 * 1024;

/// A device that is to be registered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    /// Which of the devices it is, for its caller.
    pub(super) number: usize,
    pub(super) place: Place,
    pub(super) device: &'a Device,
    pub(super) codes: Codes,
    /// When it registers.
    pub(super) now: UnixMillis,
}

/// Puts devices in the order in which they are written. Neighbours in the map share a call, and with
/// it the reading and writing of a bucket. The sort is stable and calls for one shard follow each
/// other: of two entries for one client the later must win.
pub(super) fn put_in_order(entries: &mut [Entry<'_>]) {
    entries.sort_by_key(|entry| entry.place.storage_order());
}

/// Devices in order, cut into those of each shard.
pub(super) fn by_shard<'a, 'b>(entries: &'b [Entry<'a>]) -> impl Iterator<Item = &'b [Entry<'a>]> {
    entries.chunk_by(|a, b| a.place.shard == b.place.shard)
}

/// Registers devices of one shard, in this order; gives an answer for each. A batch is encoded when
/// its turn comes, so that Redis works on one shard while the next is made ready.
pub(super) async fn put_in_shard(
    access: &Access,
    keys: &Keys,
    app: &AppKey,
    entries: &[Entry<'_>],
) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
    let mut answers = Vec::with_capacity(entries.len());
    while let Some((first, _)) = entries[answers.len()..].split_first() {
        let batch = Batch::of(&entries[answers.len()..])?;
        answers.extend(batch.put(access, &keys.shard(app, first.place.shard)).await?);
    }
    Ok(answers)
}

/// Devices of one shard, encoded for the script.
#[derive(Default)]
struct Batch {
    tags: Vec<u8>,
    records: Vec<u8>,
    /// The low bytes of the codes, then the high bytes.
    planes: [[Vec<u8>; Attribute::COUNT]; 2],
    devices: usize,
    /// When the last of them registers. No segment may say that its newest device is older than
    /// one that it has; that it is younger only costs a look at the records.
    newest: UnixMillis,
}

impl Batch {
    /// As many of the entries as one call takes, from the first on.
    fn of(entries: &[Entry<'_>]) -> Result<Self, IndexError> {
        let mut batch = Self::default();
        let [low, high] = &mut batch.planes;
        for Entry { place, device, codes, now, .. } in entries {
            if batch.devices == PUT_DEVICES || batch.records.len() >= PUT_BYTES {
                break;
            }
            batch.devices += 1;
            batch.newest = batch.newest.max(*now);
            batch.tags.extend_from_slice(&place.tag);
            Record::of(device, *codes, *now).encode(&mut batch.records)?;
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

    async fn put(
        &self,
        access: &Access,
        keys: &ShardKeys,
    ) -> Result<impl Iterator<Item = Result<Put, PutRefused>> + use<>, IndexError> {
        let mut call = access.scripts.register.call(&[keys.base()]);
        call.arg(&time_bytes(self.newest)[..]).arg(&self.tags).arg(&self.records);
        for plane in self.planes.iter().flatten() {
            call.arg(plane);
        }
        let answers = reply::bytes(call.run(&access.link).await?)?.unwrap_or_default();
        if answers.len() == self.devices {
            Ok(answers.into_iter().map(read_letter))
        } else {
            Err(IndexError::Corrupt("a registration's answer has another length".to_owned()))
        }
    }
}

/// What the script says of one device.
fn read_letter(letter: u8) -> Result<Put, PutRefused> {
    match letter {
        b'c' => Ok(Put::Created),
        b'u' => Ok(Put::Updated),
        b'g' => Err(PutRefused::AppRemoved),
        _ => Err(PutRefused::IndexFull),
    }
}
