//! Finding devices by their client ids, with plain reads.
//!
//! Where the slot of a device is remembered ([`slot_cache`](super::slot_cache)), one request reads
//! the chunks of records. Of the others, and of those that are not there any more, there are two
//! requests: one reads the buckets of the map, the other the chunks that they lead to. A script
//! would need one, but costs Redis several times as much, because Lua makes and hashes a copy of
//! every bucket and chunk that it is handed.
//!
//! Which bucket is a client's depends on how many its shard has, and that grows. So the number is
//! remembered here and read again in the same request, *behind* the buckets: if it is what was
//! remembered, the right ones were read, because a bucket moves to another number only in the step
//! that raises the number of buckets. If not, they are read anew.
//!
//! A server that has all shards is asked for all of them at once. In a cluster the keys of a request
//! must lie together, so each shard is a request of its own.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use futures::future;
use push_model::{app::AppKey, ids::ClientId};
use quick_cache::sync::Cache;
use redis::{Pipeline, Value};

use super::{
    Access,
    keys::{Keys, ShardKeys},
    layout::{self, CHUNK_SLOTS, ENTRY_LEN, Place, SHARDS, TAG_LEN},
    record::{Record, records},
    reply,
};
use crate::IndexError;

/// The most clients that one request looks up: a fraction of a megabyte, and of a millisecond of Redis.
pub(super) const CALL_CLIENTS: usize = 256;

/// How often buckets are read of a shard that grows meanwhile: a bucket for every 48 new devices.
const TRIES: u32 = 16;

/// Of how many apps the numbers of buckets are remembered.
const REMEMBERED_APPS: usize = 1024;

/// How many buckets the shards of apps had when they were last read.
pub(super) type BucketCounts = Cache<AppKey, Arc<[AtomicU32; SHARDS as usize]>>;

/// Of which nothing is known yet.
pub(super) fn bucket_counts() -> BucketCounts {
    Cache::new(REMEMBERED_APPS)
}

/// A client that is looked for: its place in the caller's list, and what its hash says.
type Wanted = (usize, Place);

/// Cuts what is sorted by shard into requests, of one shard each or of as many as come.
pub(super) fn requests<T>(
    sorted: &[T],
    shard_of: impl Fn(&T) -> u32,
    one_shard: bool,
) -> Vec<&[T]> {
    if one_shard {
        let shards = sorted.chunk_by(move |a, b| shard_of(a) == shard_of(b));
        shards.flat_map(|shard| shard.chunks(CALL_CLIENTS)).collect()
    } else {
        sorted.chunks(CALL_CLIENTS).collect()
    }
}

/// A device that was found.
pub(super) struct Found<'a> {
    pub(super) slot: u32,
    pub(super) record: Record<'a>,
}

/// A slot in which a client's record may be: the map leads there, or it was there before.
#[derive(Clone)]
struct Candidate {
    number: usize,
    place: Place,
    slot: u32,
}

/// Chunks of records that were read together, by shard and number, and whom they were read for.
struct Read {
    candidates: Vec<Candidate>,
    chunks: BTreeMap<(u32, u32), Vec<u8>>,
}

impl Read {
    /// What the slot of a candidate holds.
    fn slot(&self, candidate: &Candidate) -> Option<Result<Record<'_>, IndexError>> {
        let Candidate { place, slot, .. } = candidate;
        let chunk = self.chunks.get(&(place.shard, slot / CHUNK_SLOTS))?;
        records(chunk).nth((slot % CHUNK_SLOTS) as usize)?.transpose()
    }
}

impl Candidate {
    fn wanted(&self) -> Wanted {
        (self.number, self.place)
    }
}

/// Clients whose slots could not be read.
struct Failed {
    wanted: Vec<Wanted>,
    error: IndexError,
}

/// Finds clients of one app.
#[derive(Clone, Copy)]
struct Finder<'a> {
    access: &'a Access,
    keys: &'a Keys,
    app: &'a AppKey,
}

impl Finder<'_> {
    fn shard(&self, shard: u32) -> ShardKeys {
        self.keys.shard(self.app, shard)
    }

    /// Where the map leads for these clients.
    async fn candidates(&self, mut wanted: Vec<Wanted>) -> Result<Vec<Candidate>, IndexError> {
        let new = || Ok::<_, IndexError>(Arc::new([const { AtomicU32::new(1) }; SHARDS as usize]));
        let counts = self.access.buckets.get_or_insert_with(self.app, new)?;
        let mut candidates = Vec::with_capacity(wanted.len());
        for _ in 0..TRIES {
            wanted = self.follow(&counts, wanted, &mut candidates).await?;
            if wanted.is_empty() {
                return Ok(candidates);
            }
        }
        Err(IndexError::Refused("the map of the app's devices grows all the time".into()))
    }

    /// Reads the buckets of these clients. Gives back those whose shard has another number of
    /// buckets than was remembered; it is, from now on.
    async fn follow(
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
            for (_, place) in *wanted {
                pipe.arg(keys.bucket(place.bucket(*count)));
            }
        }
        for (_, _, keys) in &shards {
            pipe.cmd("HMGET").arg(keys.base()).arg(&["height", "buckets", "layout", "gone"]);
        }
        let mut answers = self.access.link.read_all(&pipe).await?.into_iter();
        let mut buckets = reply::list(answers.next().unwrap_or_default())?.into_iter();
        let mut again = Vec::new();
        for (wanted, remembered, _) in &shards {
            let buckets: Vec<Value> = buckets.by_ref().take(wanted.len()).collect();
            let count = bucket_count(answers.next().unwrap_or_default())?;
            let Some(count) = count else { continue };
            if count != *remembered {
                if let Some((_, place)) = wanted.first() {
                    count_of(place.shard).store(count, Ordering::Relaxed);
                }
                again.extend_from_slice(wanted);
                continue;
            }
            for ((number, place), bucket) in wanted.iter().zip(buckets) {
                let bucket = reply::bytes(bucket)?.unwrap_or_default();
                candidates.extend(slots(&bucket, place).map(|slot| Candidate {
                    number: *number,
                    place: *place,
                    slot,
                }));
            }
        }
        Ok(again)
    }

    /// The chunks of these slots, each once.
    async fn read(&self, candidates: Vec<Candidate>) -> Result<Read, IndexError> {
        let wanted =
            candidates.iter().map(|one| ((one.place.shard, one.slot / CHUNK_SLOTS), Vec::new()));
        let mut chunks: BTreeMap<_, _> = wanted.collect();
        if chunks.is_empty() {
            return Ok(Read { candidates, chunks });
        }
        let mut get = redis::cmd("MGET");
        let places: Vec<&(u32, u32)> = chunks.keys().collect();
        for of_shard in places.chunk_by(|(a, _), (b, _)| a == b) {
            let Some(keys) = of_shard.first().map(|(shard, _)| self.shard(*shard)) else {
                continue;
            };
            for (_, chunk) in of_shard {
                get.arg(keys.chunk(*chunk));
            }
        }
        let answer = reply::list(self.access.link.read(&get).await?)?;
        for (((shard, number), chunk), answer) in chunks.iter_mut().zip(answer) {
            *chunk = match reply::bytes(answer)? {
                Some(chunk) => chunk,
                // MGET does not tell a key that is missing, as while an app is being removed, from
                // one that is no string.
                None => {
                    let mut get = redis::cmd("GET");
                    get.arg(self.shard(*shard).chunk(*number));
                    reply::bytes(self.access.link.read(&get).await?)?.unwrap_or_default()
                }
            };
        }
        Ok(Read { candidates, chunks })
    }

    /// Reads the slots that are remembered; gives back the candidates that could not be read.
    async fn read_remembered(&self, remembered: Vec<Candidate>) -> Vec<Result<Read, Failed>> {
        let one_shard = self.access.link.is_cluster();
        let requests = requests(&remembered, |one| one.place.shard, one_shard);
        let requests = requests.into_iter().map(|some| async move {
            let failed =
                |error| Failed { wanted: some.iter().map(Candidate::wanted).collect(), error };
            self.read(some.to_vec()).await.map_err(failed)
        });
        future::join_all(requests).await
    }

    /// Reads the slots to which the map leads. A shard that cannot be read, which spoils a request
    /// for many, is asked for on its own, so that it fails its own clients and no others.
    async fn read_by_map(&self, wanted: Vec<Wanted>) -> Vec<Result<Read, Failed>> {
        let one_shard = self.access.link.is_cluster();
        let requests = requests(&wanted, |(_, place)| place.shard, one_shard);
        let requests = requests.into_iter().map(|some| async move {
            match self.follow_map(some).await {
                Err(Failed { error: IndexError::Refused(_) | IndexError::Corrupt(_), .. })
                    if !one_shard =>
                {
                    let shards = some.chunk_by(|(_, a), (_, b)| a.shard == b.shard);
                    future::join_all(shards.map(|shard| self.follow_map(shard))).await
                }
                read => vec![read],
            }
        });
        future::join_all(requests).await.into_iter().flatten().collect()
    }

    async fn follow_map(&self, wanted: &[Wanted]) -> Result<Read, Failed> {
        let read = async {
            let candidates = self.candidates(wanted.to_vec()).await?;
            self.read(candidates).await
        };
        read.await.map_err(|error| Failed { wanted: wanted.to_vec(), error })
    }
}

/// How many buckets a shard has; none if it has no devices, or is being removed.
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

/// The slots that a bucket has for a client; more than one if others share its tag.
fn slots(bucket: &[u8], place: &Place) -> impl Iterator<Item = u32> {
    bucket.as_chunks::<ENTRY_LEN>().0.iter().filter_map(|entry| {
        let (tag, slot) = entry.split_at_checked(TAG_LEN)?;
        (tag == place.tag).then_some(u32::from_be_bytes(slot.try_into().ok()?))
    })
}

/// Calls `found` for every registered device among these clients, with its place in the list; and
/// with the error for one whose shard could not be read. Also with the error for a record that
/// cannot be read and may be a client's; the client's own may be found before or after it.
pub(super) async fn find(
    access: &Access,
    keys: &Keys,
    app: &AppKey,
    clients: &[ClientId],
    mut found: impl FnMut(usize, Result<Found<'_>, IndexError>) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let finder = Finder { access, keys, app };
    let slots = access.slots.of(app);
    let mut wanted: Vec<Wanted> = (0..).zip(clients.iter().map(Place::of)).collect();
    wanted.sort_by_key(|(_, place)| place.shard);
    let mut remembered = Vec::with_capacity(wanted.len());
    wanted.retain(|&(number, place)| {
        let slot = slots.get(place);
        remembered.extend(slot.map(|slot| Candidate { number, place, slot }));
        slot.is_none()
    });
    let is_of = |record: &Record<'_>, candidate: &Candidate| {
        clients.get(candidate.number).is_some_and(|client| record.is_of(client))
    };
    let (remembered, mut by_map) =
        future::join(finder.read_remembered(remembered), finder.read_by_map(wanted)).await;
    let mut missed = Vec::new();
    for read in remembered {
        match read {
            Ok(read) => {
                for candidate in &read.candidates {
                    match read.slot(candidate) {
                        Some(Ok(record)) if is_of(&record, candidate) => {
                            found(candidate.number, Ok(Found { slot: candidate.slot, record }))?;
                        }
                        _ => missed.push(candidate.wanted()),
                    }
                }
            }
            // The map says whose shard it is that refuses.
            Err(Failed { wanted, error: IndexError::Refused(_) | IndexError::Corrupt(_) }) => {
                missed.extend(wanted);
            }
            Err(failed) => by_map.push(Err(failed)),
        }
    }
    if !missed.is_empty() {
        by_map.extend(finder.read_by_map(missed).await);
    }
    for read in by_map {
        let read = match read {
            Ok(read) => read,
            Err(Failed { wanted, error }) => {
                for (number, _) in wanted {
                    found(number, Err(error.again()))?;
                }
                continue;
            }
        };
        for candidate in &read.candidates {
            // Another client can have the same tag, or the slot by now: the record decides.
            match read.slot(candidate) {
                Some(Ok(record)) if is_of(&record, candidate) => {
                    slots.remember(candidate.place, candidate.slot);
                    found(candidate.number, Ok(Found { slot: candidate.slot, record }))?;
                }
                Some(Err(error)) => found(candidate.number, Err(error))?,
                None | Some(Ok(_)) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_into_requests_that_name_each_client_once() {
        let clients = (0..1000).map(|n| format!("c{n}").parse().unwrap());
        let mut wanted: Vec<Wanted> = (0..).zip(clients.map(|id| Place::of(&id))).collect();
        wanted.sort_by_key(|(_, place)| place.shard);
        for (one_shard, expected) in [(false, 4), (true, 64)] {
            let requests = requests(&wanted, |(_, place)| place.shard, one_shard);
            assert_eq!(requests.len(), expected);
            for request in &requests {
                let shards = request.chunk_by(|(_, a), (_, b)| a.shard == b.shard).count();
                assert!(!one_shard || shards == 1);
            }
            assert_eq!(requests.concat(), wanted);
        }
    }

    #[test]
    fn a_bucket_gives_the_slots_of_a_tag_and_of_no_other() {
        let place = |n: u8| Place { shard: 0, tag: [n; TAG_LEN] };
        let mut bucket = Vec::new();
        for (n, slot) in [(1, 7_u32), (2, 8), (1, 9)] {
            bucket.extend_from_slice(&place(n).tag);
            bucket.extend_from_slice(&slot.to_be_bytes());
        }
        // What is cut off is no entry, and a tag that lies across two entries is none either.
        bucket.extend_from_slice(&place(1).tag);
        assert_eq!(slots(&bucket, &place(1)).collect::<Vec<_>>(), [7, 9]);
        assert_eq!(slots(&bucket, &place(2)).collect::<Vec<_>>(), [8]);
        assert_eq!(slots(&bucket, &place(0)).count(), 0);
    }
}
