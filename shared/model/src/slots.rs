//! Where the devices of an app are stored: numbered slots, in shards.

use serde::{Deserialize, Serialize};

/// A part of an app's device list: slots `from..to` of one shard. It may hold fewer devices
/// than slots, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlotRange {
    /// The shard.
    pub shard: u32,
    /// The first slot.
    pub from: u32,
    /// One past the last slot.
    pub to: u32,
}
