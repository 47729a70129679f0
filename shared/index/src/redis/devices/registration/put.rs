//! Writing devices with the script `register.lua`: its arguments and its answers.

use push_model::{app::AppKey, attributes::Attribute, device::Device, time::UnixMillis};
use redis::Value;

use crate::{
    IndexError, Put, PutRefused,
    redis::{
        Context,
        connection::reply,
        devices::record::{Codes, Record, time_bytes},
        keys::{Keys, ShardKeys},
        layout::ClientHash,
    },
};

/// The most devices that one script call registers: about a millisecond of Redis.
const PUT_DEVICES: usize = 256;
/// A script call with this many bytes of records gets no further record.
const PUT_BYTES: usize = 256 * 1024;

/// A device that is to be registered.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingDevice<'a> {
    /// The index of the device among those of the caller.
    pub(super) number: usize,
    pub(super) hash: ClientHash,
    pub(super) device: &'a Device,
    pub(super) codes: Codes,
    /// When it registers.
    pub(super) now: UnixMillis,
    /// Until when its codes may be written, in seconds of the server's clock.
    pub(super) not_after: u64,
}

/// Why devices were not written.
#[derive(Debug)]
pub(super) enum PutFailure {
    /// The codes were read too long ago; the server's clock, in seconds.
    Late(u64),
    Failed(IndexError),
}

impl PutFailure {
    pub(super) fn duplicate(&self) -> Self {
        match self {
            Self::Late(now) => Self::Late(*now),
            Self::Failed(error) => Self::Failed(error.duplicate()),
        }
    }
}

impl From<IndexError> for PutFailure {
    fn from(error: IndexError) -> Self {
        Self::Failed(error)
    }
}

/// Takes the answer of a script that writes codes: a number if it is too late for them.
pub(super) fn in_time(answer: Value) -> Result<Vec<u8>, PutFailure> {
    match answer {
        Value::Int(now) => Err(PutFailure::Late(now.unsigned_abs())),
        answer => Ok(reply::bytes(answer)?.unwrap_or_default()),
    }
}

/// Sorts devices into the order in which they are written. Neighbours in the map share a call, and
/// so the reading and writing of a bucket. The sort is stable, and the calls for one shard are made
/// one after the other, because of two registrations of one client the later one must win.
pub(super) fn sort_for_writing(devices: &mut [PendingDevice<'_>]) {
    devices.sort_by_key(|device| device.hash.storage_order());
}

/// Cuts sorted devices into those of each shard.
pub(super) fn by_shard<'a, 'b>(
    devices: &'b [PendingDevice<'a>],
) -> impl Iterator<Item = &'b [PendingDevice<'a>]> {
    devices.chunk_by(|a, b| a.hash.shard == b.hash.shard)
}

/// Registers devices of one shard, in this order: one answer for each, up to the first failure. A request
/// is encoded only when the one before it is answered, so that Redis works on one shard while another is
/// being encoded.
pub(super) async fn put_in_shard(
    context: &Context,
    keys: &Keys,
    app: &AppKey,
    devices: &[PendingDevice<'_>],
) -> (Vec<Result<Put, PutRefused>>, Option<PutFailure>) {
    let mut answers = Vec::with_capacity(devices.len());
    while let Some((first, _)) = devices[answers.len()..].split_first() {
        let request = RegisterRequest::of(&devices[answers.len()..]);
        let answered = match &request {
            Ok(request) => request.put(context, &keys.shard(app, first.hash.shard)).await,
            Err(error) => Err(error.duplicate().into()),
        };
        match answered {
            Ok(answered) => answers.extend(answered),
            Err(failure) => return (answers, Some(failure)),
        }
    }
    (answers, None)
}

/// Devices of one shard, encoded as arguments of the script.
#[derive(Default)]
struct RegisterRequest {
    tags: Vec<u8>,
    records: Vec<u8>,
    /// The low bytes of the codes by attribute, then the high bytes.
    planes: [[Vec<u8>; Attribute::COUNT]; 2],
    count: usize,
    /// When the last of them registers. A segment's newest registration must not be earlier than
    /// that of any device in the segment; if it is later, counting only reads records needlessly.
    newest: UnixMillis,
    /// Until when the codes of all of them may be written.
    not_after: u64,
}

impl RegisterRequest {
    /// The first devices, as many as one call takes.
    fn of(devices: &[PendingDevice<'_>]) -> Result<Self, IndexError> {
        let mut request = Self { not_after: u64::MAX, ..Self::default() };
        let [low, high] = &mut request.planes;
        for PendingDevice { hash, device, codes, now, not_after, .. } in devices {
            if request.count == PUT_DEVICES || request.records.len() >= PUT_BYTES {
                break;
            }
            request.count += 1;
            request.newest = request.newest.max(*now);
            request.not_after = request.not_after.min(*not_after);
            request.tags.extend_from_slice(&hash.tag);
            Record::of(device, *codes, *now).encode(&mut request.records)?;
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
        Ok(request)
    }

    async fn put(
        &self,
        context: &Context,
        keys: &ShardKeys,
    ) -> Result<impl Iterator<Item = Result<Put, PutRefused>> + use<>, PutFailure> {
        let mut call = context.scripts.register.call(&[keys.base()]);
        call.arg(&time_bytes(self.newest)[..]).arg(&self.tags).arg(&self.records);
        for plane in self.planes.iter().flatten() {
            call.arg(plane);
        }
        call.arg(self.not_after);
        let answers = in_time(call.run(&context.link).await?)?;
        if answers.len() == self.count {
            Ok(answers.into_iter().map(read_letter))
        } else {
            let wrong = "a registration's answer has another length".to_owned();
            Err(IndexError::Corrupt(wrong).into())
        }
    }
}

/// Reads the letter that the script answers for one device.
fn read_letter(letter: u8) -> Result<Put, PutRefused> {
    match letter {
        b'c' => Ok(Put::Created),
        b'u' => Ok(Put::Updated),
        b'g' => Err(PutRefused::AppRemoved),
        _ => Err(PutRefused::IndexFull),
    }
}
