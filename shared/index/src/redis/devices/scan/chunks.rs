//! Reading the records of candidate slots.

use futures::future;
use push_store::{
    IndexError,
    redis::{connection::reply, keys::ShardKeys},
};

use super::{columns::byte_strings, decision::Undecided};
use crate::redis::{
    RedisIndex,
    devices::record::{Record, records},
    layout::CHUNK_SLOTS,
};

/// The most chunks of one answer: about 200 KiB, with the longest tokens 17 MiB.
const READ_CHUNKS: usize = 256;

/// Chunks with their numbers, in order.
pub(super) type Chunks = Vec<(u32, Vec<u8>)>;

impl RedisIndex {
    /// Reads the chunks of these slots, which are sorted.
    pub(super) async fn read_chunks(
        &self,
        keys: &ShardKeys,
        slots: &[u32],
    ) -> Result<Chunks, IndexError> {
        let mut numbers: Vec<u32> = slots.iter().map(|slot| slot / CHUNK_SLOTS).collect();
        numbers.dedup();
        let reads = numbers.chunks(READ_CHUNKS).map(|numbers| async move {
            let mut get = redis::cmd("MGET");
            for number in numbers {
                get.arg(keys.chunk(*number));
            }
            byte_strings(reply::list(self.bulk.read(&get).await?)?)
        });
        let chunks = future::try_join_all(reads).await?;
        Ok(numbers.iter().copied().zip(chunks.into_iter().flatten()).collect())
    }
}

/// Calls `look` for the record in each of these slots; both lists are sorted. Returns how many of
/// the slots have a record that cannot be read.
pub(super) fn for_each(
    slots: &[u32],
    chunks: &Chunks,
    mut look: impl FnMut(&Record<'_>) -> Result<(), Undecided>,
) -> Result<u64, Undecided> {
    let mut unreadable = 0;
    let mut slots = slots.iter().copied().peekable();
    for (number, chunk) in chunks {
        let mut records = records(chunk);
        let mut at = number * CHUNK_SLOTS;
        while let Some(slot) = slots.next_if(|slot| slot / CHUNK_SLOTS == *number) {
            let record = records.nth((slot - at) as usize).transpose().map(Option::flatten);
            at = slot + 1;
            let looked = match record {
                Ok(Some(record)) => look(&record),
                Ok(None) => Ok(()),
                Err(error) => Err(error.into()),
            };
            match looked {
                Err(Undecided::Failed(IndexError::Corrupt(_))) => unreadable += 1,
                looked => looked?,
            }
        }
    }
    Ok(unreadable)
}
