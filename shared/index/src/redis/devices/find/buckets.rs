//! The map from client id to slot: each shard's buckets of entries, found by linear hashing.
//!
//! The bucket of a client depends on the number of buckets of its shard, and that number grows. So
//! the number is cached here and read again in the same request, *behind* the buckets. If it is the
//! cached number, the right buckets were read, because entries move to another bucket only in the
//! step that raises the number of buckets. If not, the buckets are read again.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use push_model::app::AppKey;
use push_store::{
    IndexError,
    redis::{
        connection::reply,
        keys::{Keys, ShardKeys},
    },
};
use quick_cache::sync::Cache;
use redis::{Pipeline, Value};

use crate::redis::{
    Context,
    layout::{self, ClientHash, ENTRY_LEN, SHARDS, TAG_LEN},
};

/// The most reads of the buckets of a shard that keeps growing. A shard gets a new bucket only with
/// every 48 new devices.
const TRIES: u32 = 16;

/// The most apps whose numbers of buckets are cached.
const CACHED_APPS: usize = 1024;

/// The numbers of buckets of apps' shards when they were last read.
pub(in crate::redis) type BucketCounts = Cache<AppKey, Arc<[AtomicU32; SHARDS as usize]>>;

/// An empty cache.
pub(in crate::redis) fn bucket_counts() -> BucketCounts {
    Cache::new(CACHED_APPS)
}

/// A client that is looked for: its index in the caller's list, and the hash of its id.
pub(super) type Wanted = (usize, ClientHash);

/// A slot in which a client's record may be: the map leads there, or the client was found there
/// before.
#[derive(Clone)]
pub(super) struct Candidate {
    pub(super) number: usize,
    pub(super) hash: ClientHash,
    pub(super) slot: u32,
}

impl Candidate {
    pub(super) fn wanted(&self) -> Wanted {
        (self.number, self.hash)
    }
}

/// The shards of one app.
#[derive(Clone, Copy)]
pub(super) struct AppShards<'a> {
    pub(super) context: &'a Context,
    pub(super) keys: &'a Keys,
    pub(super) app: &'a AppKey,
}

impl AppShards<'_> {
    pub(super) fn shard(&self, shard: u32) -> ShardKeys {
        self.keys.shard(self.app, shard)
    }

    /// The slots to which the map leads for these clients.
    pub(super) async fn candidates(
        &self,
        mut wanted: Vec<Wanted>,
    ) -> Result<Vec<Candidate>, IndexError> {
        let new = || Ok::<_, IndexError>(Arc::new([const { AtomicU32::new(1) }; SHARDS as usize]));
        let counts = self.context.buckets.get_or_insert_with(self.app, new)?;
        let mut candidates = Vec::with_capacity(wanted.len());
        for round in 0..TRIES {
            let shards = count_shards(&wanted);
            wanted = self.read_buckets(&counts, wanted, &mut candidates).await?;
            if round == 0 {
                let misses = count_shards(&wanted);
                self.context.hits.buckets.add(shards - misses, misses);
            }
            if wanted.is_empty() {
                return Ok(candidates);
            }
        }
        Err(IndexError::Refused("the map of the app's devices grows all the time".into()))
    }

    /// Reads the buckets of these clients and adds the slots that they have to `candidates`.
    /// Returns the clients whose shard has another number of buckets than was cached; the cache has
    /// it now.
    async fn read_buckets(
        &self,
        counts: &[AtomicU32; SHARDS as usize],
        wanted: Vec<Wanted>,
        candidates: &mut Vec<Candidate>,
    ) -> Result<Vec<Wanted>, IndexError> {
        let count_of = |shard: u32| &counts[(shard % SHARDS) as usize];
        let shards: Vec<(&[Wanted], u32, ShardKeys)> = wanted
            .chunk_by(|(_, a), (_, b)| a.shard == b.shard)
            .filter_map(|wanted| Some((wanted, wanted.first()?.1.shard)))
            .map(|(wanted, shard)| {
                (wanted, count_of(shard).load(Ordering::Relaxed), self.shard(shard))
            })
            .collect();
        let mut pipe = Pipeline::with_capacity(shards.len() + 1);
        pipe.cmd("MGET");
        for (wanted, count, keys) in &shards {
            for (_, hash) in *wanted {
                pipe.arg(keys.bucket(hash.bucket(*count)));
            }
        }
        for (_, _, keys) in &shards {
            pipe.cmd("HMGET").arg(keys.base()).arg(&["height", "buckets", "layout", "gone"]);
        }
        let mut answers = self.context.link.read_all(&pipe).await?.into_iter();
        let mut buckets = reply::list(answers.next().unwrap_or_default())?.into_iter();
        let mut again = Vec::new();
        for (wanted, cached, _) in &shards {
            let buckets: Vec<Value> = buckets.by_ref().take(wanted.len()).collect();
            let count = bucket_count(answers.next().unwrap_or_default())?;
            let Some(count) = count else { continue };
            if count != *cached {
                if let Some((_, hash)) = wanted.first() {
                    count_of(hash.shard).store(count, Ordering::Relaxed);
                }
                again.extend_from_slice(wanted);
                continue;
            }
            for ((number, hash), bucket) in wanted.iter().zip(buckets) {
                let bucket = reply::bytes(bucket)?.unwrap_or_default();
                candidates.extend(slots_of(&bucket, hash).map(|slot| Candidate {
                    number: *number,
                    hash: *hash,
                    slot,
                }));
            }
        }
        Ok(again)
    }
}

/// Returns how many shards these clients are in, which are sorted by shard.
fn count_shards(wanted: &[Wanted]) -> usize {
    wanted.chunk_by(|(_, a), (_, b)| a.shard == b.shard).count()
}

/// Returns how many buckets a shard has; none if it has no devices or is being removed.
fn bucket_count(shard: Value) -> Result<Option<u32>, IndexError> {
    let mut values = reply::list(shard)?.into_iter();
    let mut next = || reply::number(values.next().unwrap_or_default());
    let (height, buckets, layout) = (next()?.unwrap_or(0), next()?, next()?);
    let is_gone = !matches!(values.next(), None | Some(Value::Nil));
    if height == 0 || is_gone {
        return Ok(None);
    }
    layout::check(height, layout)?;
    let count = buckets.unwrap_or(1);
    let count = u32::try_from(count).ok().filter(|count| *count > 0);
    count.map(Some).ok_or_else(|| IndexError::Corrupt("the number of a shard's buckets".to_owned()))
}

/// The slots that a bucket has for a client; more than one if other clients have the same tag.
fn slots_of(bucket: &[u8], hash: &ClientHash) -> impl Iterator<Item = u32> {
    bucket.as_chunks::<ENTRY_LEN>().0.iter().filter_map(|entry| {
        let (tag, slot) = entry.split_at_checked(TAG_LEN)?;
        (tag == hash.tag).then_some(u32::from_be_bytes(slot.try_into().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_the_slots_of_a_tag_and_of_no_other() {
        let hash = |n: u8| ClientHash { shard: 0, tag: [n; TAG_LEN] };
        let mut bucket = Vec::new();
        for (n, slot) in [(1, 7_u32), (2, 8), (1, 9)] {
            bucket.extend_from_slice(&hash(n).tag);
            bucket.extend_from_slice(&slot.to_be_bytes());
        }
        // An entry that is cut off does not count, and neither does a tag that spans two entries.
        bucket.extend_from_slice(&hash(1).tag);
        assert_eq!(slots_of(&bucket, &hash(1)).collect::<Vec<_>>(), [7, 9]);
        assert_eq!(slots_of(&bucket, &hash(2)).collect::<Vec<_>>(), [8]);
        assert_eq!(slots_of(&bucket, &hash(0)).count(), 0);
    }
}
