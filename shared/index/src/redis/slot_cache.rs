//! In which slots devices were found.
//!
//! A device is usually pushed to again and again, and a phone that starts registers as it did before.
//! Where the slot of a device is remembered, its chunk of records is the only key that Redis is asked
//! for: not the bucket of the map that leads to the slot, nor the shard that says how many buckets
//! there are. Such a lookup costs Redis a third of a whole one, and one round trip in place of two.
//!
//! What is remembered may be wrong: the device is gone, or has come back in another slot. Each
//! record carries its client's id, so a wrong slot costs one more lookup and never a wrong answer.

use std::hash::{BuildHasher, RandomState};

use push_model::app::AppKey;
use quick_cache::sync::Cache;

use super::layout::Place;

/// How many devices are remembered, in about 50 bytes each: 25 MB at most.
const REMEMBERED: usize = 1 << 19;

/// The slots that one program remembers, of all apps.
pub(super) struct SlotCache {
    slots: Cache<(u64, Place), u32>,
    hasher: RandomState,
}

/// The slots of one app.
pub(super) struct AppSlots<'a> {
    cache: &'a SlotCache,
    app: u64,
}

impl SlotCache {
    /// Remembers nothing yet.
    pub(super) fn new() -> Self {
        Self { slots: Cache::new(REMEMBERED), hasher: RandomState::new() }
    }

    pub(super) fn of(&self, app: &AppKey) -> AppSlots<'_> {
        AppSlots { cache: self, app: self.hasher.hash_one(app) }
    }
}

impl AppSlots<'_> {
    /// Where a client of this place was found last; it may be another client with the same hash.
    pub(super) fn get(&self, place: Place) -> Option<u32> {
        self.cache.slots.get(&(self.app, place))
    }

    pub(super) fn remember(&self, place: Place, slot: u32) {
        if self.get(place) != Some(slot) {
            self.cache.slots.insert((self.app, place), slot);
        }
    }
}
