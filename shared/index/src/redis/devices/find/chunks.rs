//! Reading the chunks that may have the records of clients.
//!
//! For a client whose slot is cached ([`slot_cache`](super::slot_cache)), one request reads the
//! chunk. For the others, and for those that are no longer in their cached slot, there are two
//! requests: one reads the buckets of the map, the other the chunks to which they lead. A script
//! would need one request, but would cost Redis several times as much, because Lua makes and hashes
//! a copy of every bucket and chunk that it receives.
//!
//! A single server is asked for all shards at once. In a cluster each shard is a request of its
//! own.

use std::collections::BTreeMap;

use futures::future;
use push_store::{IndexError, redis::connection::reply};

use super::{
    buckets::{AppShards, Candidate, Wanted},
    requests::requests,
};
use crate::redis::{
    devices::record::{Record, records},
    layout::CHUNK_SLOTS,
};

/// Chunks of records that were read together, by shard and number of the chunk, and the candidates
/// for which they were read.
pub(super) struct ReadChunks {
    pub(super) candidates: Vec<Candidate>,
    chunks: BTreeMap<(u32, u32), Vec<u8>>,
}

impl ReadChunks {
    /// The record in the slot of a candidate; none if the slot is free.
    pub(super) fn record(&self, candidate: &Candidate) -> Option<Result<Record<'_>, IndexError>> {
        let Candidate { hash, slot, .. } = candidate;
        let chunk = self.chunks.get(&(hash.shard, slot / CHUNK_SLOTS))?;
        records(chunk).nth((slot % CHUNK_SLOTS) as usize)?.transpose()
    }
}

/// Clients whose slots could not be read.
pub(super) struct Failed {
    pub(super) wanted: Vec<Wanted>,
    pub(super) error: IndexError,
}

impl AppShards<'_> {
    /// Reads the chunks of these slots, each once.
    async fn read_chunks(&self, candidates: Vec<Candidate>) -> Result<ReadChunks, IndexError> {
        let wanted =
            candidates.iter().map(|one| ((one.hash.shard, one.slot / CHUNK_SLOTS), Vec::new()));
        let mut chunks: BTreeMap<_, _> = wanted.collect();
        if chunks.is_empty() {
            return Ok(ReadChunks { candidates, chunks });
        }
        let mut get = redis::cmd("MGET");
        let numbers: Vec<&(u32, u32)> = chunks.keys().collect();
        for of_shard in numbers.chunk_by(|(a, _), (b, _)| a == b) {
            let Some(keys) = of_shard.first().map(|(shard, _)| self.shard(*shard)) else {
                continue;
            };
            for (_, chunk) in of_shard {
                get.arg(keys.chunk(*chunk));
            }
        }
        let answer = reply::list(self.context.link.read(&get).await?)?;
        for (((shard, number), chunk), answer) in chunks.iter_mut().zip(answer) {
            *chunk = match reply::bytes(answer)? {
                Some(chunk) => chunk,
                // MGET answers nil both for a missing key, as while an app is being removed, and
                // for one that is not a string. GET fails for the latter.
                None => {
                    let mut get = redis::cmd("GET");
                    get.arg(self.shard(*shard).chunk(*number));
                    reply::bytes(self.context.link.read(&get).await?)?.unwrap_or_default()
                }
            };
        }
        Ok(ReadChunks { candidates, chunks })
    }

    /// Reads the chunks of cached slots.
    pub(super) async fn read_cached(
        &self,
        cached: Vec<Candidate>,
    ) -> Vec<Result<ReadChunks, Failed>> {
        let one_shard = self.context.link.is_cluster();
        let requests = requests(&cached, |one| one.hash.shard, one_shard);
        let requests = requests.into_iter().map(|some| async move {
            let failed =
                |error| Failed { wanted: some.iter().map(Candidate::wanted).collect(), error };
            self.read_chunks(some.to_vec()).await.map_err(failed)
        });
        future::join_all(requests).await
    }

    /// Reads the chunks of the slots to which the map leads. If a request for many shards fails
    /// because one of them cannot be read, each shard is asked for on its own, so that such a shard
    /// fails only its own clients.
    pub(super) async fn read_by_map(&self, wanted: Vec<Wanted>) -> Vec<Result<ReadChunks, Failed>> {
        let one_shard = self.context.link.is_cluster();
        let requests = requests(&wanted, |(_, hash)| hash.shard, one_shard);
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

    async fn follow_map(&self, wanted: &[Wanted]) -> Result<ReadChunks, Failed> {
        let read = async {
            let candidates = self.candidates(wanted.to_vec()).await?;
            self.read_chunks(candidates).await
        };
        read.await.map_err(|error| Failed { wanted: wanted.to_vec(), error })
    }
}
