//! A cache of the slots in which devices were found.
//!
//! A device is usually pushed to again and again, and a phone that starts registers as it did
//! before. For a device whose slot is in the cache, Redis is asked for one key only, its chunk of
//! records: not for the bucket of the map that leads to the slot, nor for the shard's number of
//! buckets. Such a lookup costs Redis a third of a whole one, and takes one round trip instead of
//! two.
//!
//! A cached slot may be wrong: the device may be gone, or may have come back in another slot. Each
//! record has its client's id, so a wrong slot costs one more lookup and never gives a wrong
//! answer.

use std::hash::{BuildHasher, RandomState};

use push_model::app::AppKey;
use quick_cache::sync::Cache;

use crate::redis::layout::ClientHash;

/// The most devices in the cache, at about 50 bytes each: 25 MB at most.
const CACHED_DEVICES: usize = 1 << 19;

/// The cached slots of one program, of all apps.
pub(in crate::redis) struct SlotCache {
    slots: Cache<(u64, ClientHash), u32>,
    hasher: RandomState,
}

/// The cached slots of one app.
pub(super) struct AppSlots<'a> {
    cache: &'a SlotCache,
    app: u64,
}

impl SlotCache {
    /// An empty cache.
    pub(in crate::redis) fn new() -> Self {
        Self { slots: Cache::new(CACHED_DEVICES), hasher: RandomState::new() }
    }

    /// Returns how many slots it has.
    pub(in crate::redis) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns how many slots it may have.
    pub(in crate::redis) fn limit(&self) -> u64 {
        self.slots.capacity()
    }

    pub(super) fn of(&self, app: &AppKey) -> AppSlots<'_> {
        AppSlots { cache: self, app: self.hasher.hash_one(app) }
    }
}

impl AppSlots<'_> {
    /// Where a client with this hash was found last; it may be another client with the same hash.
    pub(super) fn get(&self, hash: ClientHash) -> Option<u32> {
        self.cache.slots.get(&(self.app, hash))
    }

    pub(super) fn insert(&self, hash: ClientHash, slot: u32) {
        if self.get(hash) != Some(slot) {
            self.cache.slots.insert((self.app, hash), slot);
        }
    }
}
