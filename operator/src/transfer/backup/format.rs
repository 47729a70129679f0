//! The form of a backup file.
//!
//! ```text
//! push app backup 1⏎                the version, as text
//! kind  length  packed  block …     blocks: one byte, two 32-bit numbers (big-endian), an LZ4 block
//! SHA-256 of all that is before it
//! ```
//!
//! The first block is the [`Head`], the last one the [`Tail`]; those between hold devices, a JSON
//! object a line. So a file that ends early has no tail, and a byte that has changed another sum.
//! Secrets are in it as in a store: as hashes. Tokens of devices are unencrypted, as there.

use push_model::{
    app::App,
    device::{CheckedDevice, Device, DeviceDraft},
    profile::Profile,
    registration::{Serial, Stamp},
    time::UnixMillis,
    transfer::Registration,
};
use serde::{Deserialize, Serialize};

/// Begins every version of the form; the number of the version and a line end follow.
pub(super) const MAGIC: &str = "push app backup ";
/// The version that this program writes, and the only one that it reads.
pub(super) const VERSION: u32 = 1;
/// The longest first line, with its end.
pub(super) const MAX_FIRST_LINE: usize = 64;

/// Devices are written as a block once they have this many bytes.
pub(super) const BLOCK_BYTES: usize = 1 << 20;
/// The longest block that is read, unpacked: no file can ask for more memory. The last device of a
/// block may exceed [`BLOCK_BYTES`].
pub(super) const MAX_BLOCK: usize = 2 * BLOCK_BYTES;

/// Bytes of a block before its content.
pub(super) const BLOCK_HEAD: usize = 9;
/// Bytes of the sum.
pub(super) const SUM: usize = 32;

/// The content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Head,
    Devices,
    Tail,
}

impl Kind {
    pub(super) const fn letter(self) -> u8 {
        match self {
            Self::Head => b'A',
            Self::Devices => b'D',
            Self::Tail => b'E',
        }
    }

    pub(super) fn of(letter: u8) -> Option<Self> {
        [Self::Head, Self::Devices, Self::Tail].into_iter().find(|kind| kind.letter() == letter)
    }
}

/// A number of an app is less than this: the scripts of Redis compute with doubles, and would never find
/// one of 2^53 or more equal to what is stored. Half of them are left for changes to come.
const MOST: u64 = 1 << 52;
/// A time of registration is less than this: Redis keeps 42 bits of it.
const LAST_TIME: u64 = 1 << 42;

/// The app.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Head {
    /// When the backup was begun.
    pub(super) made_at: UnixMillis,
    /// The record, as stores have it.
    pub(super) app: App,
}

impl Head {
    /// Returns true if a store can keep its numbers.
    pub(super) fn is_storable(&self) -> bool {
        let App { created_at, generation, revision, .. } = &self.app;
        [created_at.0, *generation, *revision].iter().all(|number| *number < MOST)
    }
}

/// The number of devices that the file must hold.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Tail {
    pub(super) devices: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    device: &'a Device,
    #[serde(skip_serializing_if = "Profile::is_empty")]
    profile: &'a Profile,
    #[serde(flatten)]
    stamp: StampLine,
}

/// The profile of a line. Its attributes have the ids that the app's record in the head has.
#[derive(Deserialize)]
struct ProfileLine {
    #[serde(default)]
    profile: Profile,
}

#[derive(Serialize, Deserialize)]
struct StampLine {
    registered_at: UnixMillis,
    serial: u8,
    /// Absent if it is the time of registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renewed_at: Option<UnixMillis>,
}

/// Appends a device.
pub(super) fn write_device(
    Registration { device, stamp }: &Registration,
    block: &mut Vec<u8>,
) -> serde_json::Result<()> {
    let Stamp { registered_at, serial, renewed_at } = *stamp;
    let renewed_at = (renewed_at != registered_at).then_some(renewed_at);
    let stamp = StampLine { registered_at, serial: serial.get(), renewed_at };
    serde_json::to_writer(&mut *block, &Line { device, profile: &device.profile, stamp })?;
    block.push(b'\n');
    Ok(())
}

/// Reads the devices of a block; none if one of them is unreadable.
pub(super) fn read_devices(block: &[u8]) -> Option<Vec<Registration>> {
    let block = str::from_utf8(block).ok()?;
    block.lines().map(read_device).collect()
}

fn read_device(line: &str) -> Option<Registration> {
    let StampLine { registered_at, serial, renewed_at } = serde_json::from_str(line).ok()?;
    let serial = Serial::of(serial.into());
    let stamp = Stamp { registered_at, serial, renewed_at: renewed_at.unwrap_or(registered_at) };
    let mut draft: DeviceDraft<'_> = serde_json::from_str(line).ok()?;
    let client_id = draft.client_id.take()?.parse().ok()?;
    let CheckedDevice { mut device, warnings } = draft.check(client_id).ok()?;
    device.profile = serde_json::from_str::<ProfileLine>(line).ok()?.profile;
    let is_storable =
        registered_at.max(stamp.renewed_at).0 < LAST_TIME && device.profile.is_storable();
    (is_storable && warnings.is_empty()).then_some(Registration { device, stamp })
}
