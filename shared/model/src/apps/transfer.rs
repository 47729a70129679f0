//! Apps that are taken from one store to another: moved, or restored from a backup.
//!
//! An app is in service in one store only. While its devices are taken to another store, that store
//! has an [`Arrival`] in place of the app's record, so no push can reach half of its devices there;
//! the record comes last. In the store that an app leaves, its record stays and says where it went
//! ([`MovedTo`]), so that this store takes no pushes and no registrations for it any more.

use serde::{Deserialize, Serialize};

use crate::{device::Device, registration::Stamp, time::UnixMillis};

/// A device and when it registered: a broadcast reaches only devices that registered before it was accepted,
/// so a device must not become younger when it is taken to another store, and its login must stay valid. Its last
/// [change of carrier](crate::registration::CarrierChange) stays behind, because no broadcast goes on in
/// another store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The device.
    pub device: Device,
    /// When it registered, and as which registration.
    pub stamp: Stamp,
}

/// The store that an app moved to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedTo {
    /// The store, as its URL without user and password.
    pub store: String,
    /// When it left, which is before its first device was taken.
    pub at: UnixMillis,
    /// True if it was disabled before.
    #[serde(default)]
    pub was_disabled: bool,
}

/// The progress of taking the devices of an app. Devices before it, in the order in which they are
/// read, are stored.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Position {
    /// A shard of the store, or 0 for a file.
    pub shard: u32,
    /// A slot of it, or a block of the file.
    pub slot: u32,
}

/// An app that is on its way to a store: its devices come first, its record last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// When the app was made. It tells the app from another one of its name.
    pub created_at: UnixMillis,
    /// The generation that the app has in this store.
    #[serde(default)]
    pub generation: u64,
    /// Its origin: a store, or a backup.
    pub origin: String,
    /// The attempt that works on it, by a random name: a new attempt takes the app over from an earlier
    /// one, which may run still, and notices with its next step.
    #[serde(default)]
    pub attempt: String,
    /// When the first attempt began.
    pub begun_at: UnixMillis,
    /// The position from which the next attempt continues.
    #[serde(default)]
    pub position: Position,
}
