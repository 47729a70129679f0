//! Devices of an app are stored in shards, each a row of numbered slots.

use serde::{Deserialize, Serialize};

/// A part of an app's device list: slots `from..to` of one shard. Slots may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlotRange {
    /// The shard.
    pub shard: u32,
    /// The first slot.
    pub from: u32,
    /// One past the last slot.
    pub to: u32,
}
