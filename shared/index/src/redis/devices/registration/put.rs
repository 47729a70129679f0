//! Writing devices with the script `register.lua`: its arguments and its answers.

use push_model::{
    app::AppKey,
    attributes::Attribute,
    device::Device,
    registration::{RegistrationEpoch, Stamp},
    time::UnixMillis,
};
use push_store::{
    IndexError,
    redis::{
        connection::reply,
        keys::{Keys, ShardKeys},
    },
};
use redis::Value;

use crate::{
    Put, PutRefused,
    redis::{
        Context,
        devices::{
            profile::{CodedChange, Section},
            record::{Codes, Record, read_epoch, time_bytes},
        },
        layout::{ClientHash, EPOCH_LEN, carrier_byte},
    },
};

/// The most devices that one script call registers: about a millisecond of Redis.
const PUT_DEVICES: usize = 256;
/// A script call with this many bytes of records gets no further record.
const PUT_BYTES: usize = 256 * 1024;
/// The same for bytes of profiles. A topic has two of them, and costs some microseconds.
const PUT_PROFILE_BYTES: usize = 2 * 1024;

/// A device that is to be registered.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingDevice<'a> {
    /// The index of the device among those of the caller.
    pub(super) number: usize,
    pub(super) hash: ClientHash,
    pub(super) device: &'a Device,
    pub(super) codes: Codes,
    /// What it changes of its profile if it is registered.
    pub(super) change: &'a CodedChange,
    /// The profile that it gets if it is new.
    pub(super) profile: Section<'a>,
    /// The number of topics that it does not get if it is new.
    pub(super) beyond: usize,
    /// The time of its registration. For a device that is registered already, only the time of
    /// renewal is used.
    pub(super) stamp: Stamp,
    /// Until when its codes may be written, in seconds of the server's clock.
    pub(super) not_after: u64,
    /// The registration that it must be, if it is written only while it is one.
    pub(super) only: Option<RegistrationEpoch>,
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
pub(super) fn in_time(answer: Value) -> Result<Value, PutFailure> {
    match answer {
        Value::Int(now) => Err(PutFailure::Late(now.unsigned_abs())),
        answer => Ok(answer),
    }
}

/// The effect of a registration and the epoch of the stored device, or the reason why it was
/// refused.
pub(super) type Registered = Result<(Put, RegistrationEpoch), PutRefused>;

/// The same; none if the device is registered, with a profile before or after, so that its record must be read first.
pub(super) type Answered = Option<Registered>;

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
) -> (Vec<Answered>, Option<PutFailure>) {
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
    /// Bytes of profiles in the records.
    profiles: usize,
    /// The bytes of the carrier column.
    carriers: Vec<u8>,
    stamps: Vec<Stamp>,
    /// When the last of them registers. A segment's newest registration must not be earlier than
    /// that of any device in the segment; if it is later, counting only reads records needlessly.
    newest: UnixMillis,
    /// The time until which the codes of all of them may be written.
    not_after: u64,
}

impl RegisterRequest {
    /// The first devices, as many as one call takes.
    fn of(devices: &[PendingDevice<'_>]) -> Result<Self, IndexError> {
        let mut request = Self { not_after: u64::MAX, ..Self::default() };
        let [low, high] = &mut request.planes;
        for PendingDevice { hash, device, codes, profile, stamp, not_after, .. } in devices {
            if request.stamps.len() == PUT_DEVICES
                || request.records.len() >= PUT_BYTES
                || request.profiles >= PUT_PROFILE_BYTES
            {
                break;
            }
            request.profiles += profile.stored_len();
            request.stamps.push(*stamp);
            request.carriers.push(carrier_byte(device.carrier(), None));
            request.newest = request.newest.max(stamp.registered_at);
            request.not_after = request.not_after.min(*not_after);
            request.tags.extend_from_slice(&hash.tag);
            Record::of(device, *codes, *profile, *stamp).encode(&mut request.records)?;
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

    async fn put(&self, context: &Context, keys: &ShardKeys) -> Result<Vec<Answered>, PutFailure> {
        let mut call = context.scripts.register.call(&[keys.base()]);
        call.arg(&time_bytes(self.newest)[..]).arg(&self.tags).arg(&self.records);
        let [low, high] = &self.planes;
        for plane in low.iter().chain([&self.carriers]).chain(high) {
            call.arg(plane);
        }
        call.arg(self.not_after);
        let (letters, updated) = match in_time(call.run(&context.link).await?)? {
            Value::Array(both) => {
                let mut both = both.into_iter().map(reply::bytes);
                let mut next = || both.next().transpose().map(Option::flatten);
                (next()?.unwrap_or_default(), next()?.unwrap_or_default())
            }
            letters => (reply::bytes(letters)?.unwrap_or_default(), Vec::new()),
        };
        let mut updated = updated.as_chunks::<EPOCH_LEN>().0.iter();
        let answers = letters.into_iter().zip(&self.stamps);
        let answers: Option<Vec<Answered>> =
            answers.map(|(letter, stamp)| read_letter(letter, *stamp, || updated.next())).collect();
        answers.filter(|answers| answers.len() == self.stamps.len()).ok_or_else(|| {
            IndexError::Corrupt("a registration's answer has another length".to_owned()).into()
        })
    }
}

/// Reads the letter that the script answers for one device with this stamp. `updated` gives the epoch of the next
/// updated device; none if the answer has too few.
fn read_letter<'a>(
    letter: u8,
    stamp: Stamp,
    updated: impl FnOnce() -> Option<&'a [u8; EPOCH_LEN]>,
) -> Option<Answered> {
    Some(match letter {
        b'c' => Some(Ok((Put::Created, stamp.epoch()))),
        b'u' => Some(Ok((Put::Updated, read_epoch(updated()?)))),
        b'g' => Some(Err(PutRefused::AppRemoved)),
        b'a' => None,
        _ => Some(Err(PutRefused::IndexFull)),
    })
}
