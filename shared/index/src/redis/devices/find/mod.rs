//! Finding devices by their client ids, with ordinary reads.
//!
//! - [`requests`]: cuts a list of clients into requests.
//! - [`slot_cache`]: the slots in which devices were found before.
//! - [`buckets`]: the map from client id to slot. [`chunks`]: the records in those slots.
//! - [`lookup`]: coalesced lookups of how devices are reached.

mod buckets;
mod chunks;
mod lookup;
mod requests;
mod slot_cache;

use futures::future;
use push_model::{app::AppKey, ids::ClientId};
use push_store::{IndexError, redis::keys::Keys};

pub(super) use self::requests::requests;
use self::{
    buckets::{AppShards, Candidate, Wanted},
    chunks::Failed,
};
pub(in crate::redis) use self::{
    buckets::{BucketCounts, bucket_counts},
    lookup::{Lookups, lookups},
    slot_cache::SlotCache,
};
use super::record::Record;
use crate::redis::{Context, layout::ClientHash};

/// A device that was found.
pub(in crate::redis) struct FoundDevice<'a> {
    pub(super) slot: u32,
    pub(in crate::redis) record: Record<'a>,
}

/// Calls `found` for every registered device among these clients, with the client's index in the
/// list. Calls it with an error for a client whose shard could not be read, and for a record that
/// cannot be read and may be a client's; the client's own record may be found before or after that.
pub(in crate::redis) async fn find(
    context: &Context,
    keys: &Keys,
    app: &AppKey,
    clients: &[ClientId],
    mut found: impl FnMut(usize, Result<FoundDevice<'_>, IndexError>) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let shards = AppShards { context, keys, app };
    let slots = context.slots.of(app);
    let mut wanted: Vec<Wanted> = (0..).zip(clients.iter().map(ClientHash::of)).collect();
    wanted.sort_by_key(|(_, hash)| hash.shard);
    let mut cached = Vec::with_capacity(wanted.len());
    wanted.retain(|&(number, hash)| {
        let slot = slots.get(hash);
        cached.extend(slot.map(|slot| Candidate { number, hash, slot }));
        slot.is_none()
    });
    let is_of = |record: &Record<'_>, candidate: &Candidate| {
        clients.get(candidate.number).is_some_and(|client| record.is_of(client))
    };
    let (cached, mut by_map) =
        future::join(shards.read_cached(cached), shards.read_by_map(wanted)).await;
    let (mut hits, mut misses) = (0, 0);
    let mut missed = Vec::new();
    for read in cached {
        match read {
            Ok(read) => {
                for candidate in &read.candidates {
                    match read.record(candidate) {
                        Some(Ok(record)) if is_of(&record, candidate) => {
                            hits += 1;
                            found(
                                candidate.number,
                                Ok(FoundDevice { slot: candidate.slot, record }),
                            )?;
                        }
                        _ => missed.push(candidate.wanted()),
                    }
                }
            }
            // Reading by the map tells which shard refuses.
            Err(Failed { wanted, error: IndexError::Refused(_) | IndexError::Corrupt(_) }) => {
                missed.extend(wanted);
            }
            Err(failed) => by_map.push(Err(failed)),
        }
    }
    if !missed.is_empty() {
        by_map.extend(shards.read_by_map(missed).await);
    }
    for read in by_map {
        let read = match read {
            Ok(read) => read,
            Err(Failed { wanted, error }) => {
                for (number, _) in wanted {
                    found(number, Err(error.duplicate()))?;
                }
                continue;
            }
        };
        for candidate in &read.candidates {
            // Another client may have the same tag, or may be in the slot by now: the record
            // decides.
            match read.record(candidate) {
                Some(Ok(record)) if is_of(&record, candidate) => {
                    misses += 1;
                    slots.insert(candidate.hash, candidate.slot);
                    found(candidate.number, Ok(FoundDevice { slot: candidate.slot, record }))?;
                }
                Some(Err(error)) => found(candidate.number, Err(error))?,
                None | Some(Ok(_)) => {}
            }
        }
    }
    context.hits.slots.add(hits, misses);
    Ok(())
}
