//! Looking devices up by their client ids: lookups that come together are a few plain reads.
//!
//! There are two requests: one reads the buckets of the map, the other the chunks that they lead
//! to. A script would need one, but costs Redis several times as much, because Lua makes and
//! hashes a copy of every bucket and chunk that it is handed.
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
use quick_cache::sync::Cache;
use redis::{Pipeline, Value};

use super::{
    Access, RedisIndex,
    keys::{Keys, ShardKeys},
    layout::{self, CHUNK_SLOTS, ENTRY_LEN, Place, SHARDS, TAG_LEN},
    record::{Record, records},
    reply,
};
use crate::{
    device::{NoTarget, Target},
    group::{GroupLimits, Grouped},
    ids::ClientId,
    index::{AppKey, IndexError},
};

/// The most clients that one request looks up: a fraction of a megabyte, and of a millisecond of Redis.
const CALL_CLIENTS: usize = 256;

/// How lookups are grouped.
const LIMITS: GroupLimits = GroupLimits { calls: CALL_CLIENTS, groups: 4 };

/// A list that is longer than this is company enough for itself.
const GROUPED_CLIENTS: usize = 16;

/// How often buckets are read of a shard that grows meanwhile. It does for every 48 new devices.
const TRIES: u32 = 16;

/// Of how many apps the numbers of buckets are remembered.
const REMEMBERED_APPS: usize = 1024;

/// How many buckets the shards of apps had when they were last read.
pub(super) type BucketCounts = Cache<AppKey, Arc<[AtomicU32; SHARDS as usize]>>;

/// Of which nothing is known yet.
pub(super) fn bucket_counts() -> BucketCounts {
    Cache::new(REMEMBERED_APPS)
}

/// How devices are reached, or why they are not.
type Found = Vec<Result<Target, NoTarget>>;

/// Clients of one app whose devices somebody waits for.
#[derive(Debug)]
pub(super) struct Lookup {
    app: AppKey,
    clients: Vec<ClientId>,
}

/// Lookups, in groups.
pub(super) type Lookups = Grouped<Lookup, Result<Found, IndexError>>;

/// Groups lookups that go through this access.
pub(super) fn lookups(access: Access, keys: Keys) -> Lookups {
    Grouped::new(LIMITS, move |lookups| look_all_up(access.clone(), keys.clone(), lookups))
}

async fn look_all_up(
    access: Access,
    keys: Keys,
    lookups: Vec<Lookup>,
) -> Vec<Result<Found, IndexError>> {
    let mut by_app: BTreeMap<&AppKey, Vec<ClientId>> = BTreeMap::new();
    for Lookup { app, clients } in &lookups {
        by_app.entry(app).or_default().extend_from_slice(clients);
    }
    let asked = by_app.into_iter().map(|(app, clients)| {
        let (access, keys) = (&access, &keys);
        async move { (app, targets(access, keys, app, &clients).await) }
    });
    let mut answers: BTreeMap<_, _> = future::join_all(asked)
        .await
        .into_iter()
        .map(|(app, found)| (app, found.map(Vec::into_iter)))
        .collect();
    let mut of = |Lookup { app, clients }: &Lookup| match answers.get_mut(app) {
        Some(Ok(found)) => Ok(found.take(clients.len()).collect()),
        Some(Err(error)) => Err(error.again()),
        None => Ok(Vec::new()),
    };
    lookups.iter().map(&mut of).collect()
}

async fn targets(
    access: &Access,
    keys: &Keys,
    app: &AppKey,
    clients: &[ClientId],
) -> Result<Found, IndexError> {
    let mut targets = vec![Err(NoTarget::Unknown); clients.len()];
    find(access, keys, app, clients, |place, record| {
        match (targets.get_mut(place), record.and_then(Record::target)) {
            (Some(target), Ok(found)) => *target = Ok(found),
            (Some(target @ Err(_)), Err(error)) => {
                tracing::warn!(app_id = %app.id, %error, "a named device is left out");
                *target = Err(NoTarget::Unreadable);
            }
            _ => {}
        }
        Ok(())
    })
    .await?;
    Ok(targets)
}

/// A client that is looked for: its place in the caller's list, and what its hash says.
type Wanted = (usize, Place);

/// Cuts a list into calls, of one shard each or of as many as come.
fn calls(clients: &[ClientId], one_shard: bool) -> Vec<Vec<Wanted>> {
    let mut wanted: Vec<Wanted> = (0..).zip(clients.iter().map(Place::of)).collect();
    wanted.sort_by_key(|(_, place)| place.shard);
    if one_shard {
        let shards = wanted.chunk_by(|(_, a), (_, b)| a.shard == b.shard);
        shards.flat_map(|shard| shard.chunks(CALL_CLIENTS)).map(<[_]>::to_vec).collect()
    } else {
        wanted.chunks(CALL_CLIENTS).map(<[_]>::to_vec).collect()
    }
}

/// Where the map leads for a client: a slot, in which the client's record is, or another one's.
struct Candidate {
    number: usize,
    shard: u32,
    slot: u32,
}

/// Looks up the clients of one call.
struct Call<'a> {
    access: &'a Access,
    keys: &'a Keys,
    app: &'a AppKey,
}

impl Call<'_> {
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
                    shard: place.shard,
                    slot,
                }));
            }
        }
        Ok(again)
    }

    /// The chunks of these slots, each once.
    async fn chunks(
        &self,
        candidates: &[Candidate],
    ) -> Result<BTreeMap<(u32, u32), Vec<u8>>, IndexError> {
        let wanted = candidates.iter().map(|one| ((one.shard, one.slot / CHUNK_SLOTS), Vec::new()));
        let mut chunks: BTreeMap<_, _> = wanted.collect();
        if chunks.is_empty() {
            return Ok(chunks);
        }
        let mut get = redis::cmd("MGET");
        for (shard, chunk) in chunks.keys() {
            get.arg(self.shard(*shard).chunk(*chunk));
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
        Ok(chunks)
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
/// for one whose record may be among those that cannot be read, with the error, if no other is
/// found.
pub(super) async fn find(
    access: &Access,
    keys: &Keys,
    app: &AppKey,
    clients: &[ClientId],
    mut found: impl FnMut(usize, Result<&Record<'_>, IndexError>) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let calls = calls(clients, access.link.is_cluster()).into_iter().map(|wanted| async move {
        let call = Call { access, keys, app };
        let candidates = call.candidates(wanted).await?;
        let chunks = call.chunks(&candidates).await?;
        Ok::<_, IndexError>((candidates, chunks))
    });
    for (candidates, chunks) in future::try_join_all(calls).await? {
        for Candidate { number, shard, slot } in candidates {
            let chunk = chunks.get(&(shard, slot / CHUNK_SLOTS)).map_or(&[][..], Vec::as_slice);
            // Another client can have the same tag, or the slot by now: the record decides.
            match records(chunk).nth((slot % CHUNK_SLOTS) as usize) {
                Some(Ok(Some(record))) => {
                    if clients.get(number).is_some_and(|client| record.is_of(client)) {
                        found(number, Ok(&record))?;
                    }
                }
                Some(Err(error)) => found(number, Err(error))?,
                None | Some(Ok(None)) => {}
            }
        }
    }
    Ok(())
}

impl RedisIndex {
    /// How these devices are reached, one entry for each.
    pub(super) async fn look_up(
        &self,
        app: &AppKey,
        clients: &[ClientId],
    ) -> Result<Found, IndexError> {
        if clients.len() > GROUPED_CLIENTS {
            return targets(&self.access, &self.keys, app, clients).await;
        }
        let lookup = Lookup { app: app.clone(), clients: clients.to_vec() };
        self.lookups.call(lookup).await.map_err(|error| IndexError::Unsure(Box::new(error)))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_into_calls_that_name_each_client_once() {
        let clients: Vec<ClientId> = (0..1000).map(|n| format!("c{n}").parse().unwrap()).collect();
        for (one_shard, expected) in [(false, 4), (true, 64)] {
            let calls = calls(&clients, one_shard);
            assert_eq!(calls.len(), expected);
            let mut named: Vec<usize> = Vec::new();
            for call in &calls {
                assert!(call.is_sorted_by_key(|(_, place)| place.shard));
                let shards = call.chunk_by(|(_, a), (_, b)| a.shard == b.shard).count();
                assert!(!one_shard || shards == 1);
                assert!(call.iter().all(|(n, place)| *place == Place::of(&clients[*n])));
                named.extend(call.iter().map(|(number, _)| number));
            }
            named.sort_unstable();
            assert_eq!(named, (0..1000).collect::<Vec<_>>());
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
