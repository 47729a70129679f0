//! Counts hits and misses of this program's caches.
//!
//! Counted where the answer is known, not where the cache is asked: an entry that turns out to be out of date
//! costs more than one that is missing, so it is a miss. Devices that no cache can have, because they do not
//! exist, and records that could not be read count as neither.

use std::sync::atomic::{AtomicU64, Ordering};

use push_store::CacheUse;

use super::{Context, RedisIndex};

/// The counts of all caches of an index.
#[derive(Debug, Default)]
pub(super) struct CacheHits {
    /// Devices that were found: a hit was in its cached slot.
    pub(super) slots: HitCount,
    /// Dictionaries of apps: a hit needs no reading from the start.
    pub(super) dictionaries: HitCount,
    /// Numbers of buckets of shards: a hit was right.
    pub(super) buckets: HitCount,
}

/// The counts of one cache.
#[derive(Debug, Default)]
pub(super) struct HitCount {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl HitCount {
    /// Adds lookups.
    pub(super) fn add(&self, hits: usize, misses: usize) {
        for (count, more) in [(&self.hits, hits), (&self.misses, misses)] {
            count.fetch_add(u64::try_from(more).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// The hits and the misses since the program started.
    pub(super) fn read(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}

impl RedisIndex {
    /// The caches of this program.
    pub(super) fn caches(&self) -> Vec<CacheUse> {
        let Context { slots, buckets, hits: counts, .. } = &self.context;
        let dictionaries = &self.dictionary_cache;
        let of = |cache, entries: usize, limit, counts: &HitCount| {
            let entries = u64::try_from(entries).unwrap_or(u64::MAX);
            let (hits, misses) = counts.read();
            CacheUse { cache, entries, limit, hits, misses }
        };
        vec![
            of("slots", slots.len(), slots.limit(), &counts.slots),
            of(
                "dictionaries",
                dictionaries.len(),
                dictionaries.capacity() / 1024,
                &counts.dictionaries,
            ),
            of("buckets", buckets.len(), buckets.capacity(), &counts.buckets),
        ]
    }
}
