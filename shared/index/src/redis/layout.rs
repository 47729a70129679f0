//! How devices lie in Redis: the sizes that readers and scripts agree on, and where a client id
//! belongs.
//!
//! An app's devices are spread over [`SHARDS`] shards. In a shard a device has a slot. Two things
//! are kept of it: its *record* in a chunk, which is the truth, and its attribute codes in
//! columns, which say quickly where to look. A reader finds candidates in the columns and
//! decides on the record, so that it is never wrong however columns and records are read apart.
//!
//! A column is two planes of one byte a slot, of which most have only the first: few attributes
//! have more than 255 values, and reading the columns is nearly all that targeting costs.

use push_model::ids::ClientId;
use sha2::{Digest, Sha256};

use super::failure::{CORRUPT, OTHER_VERSION};
use crate::IndexError;

/// The number of this layout, which every shard carries: what lies otherwise would be misread
/// without a word. 1, which carried no number, was columns of two bytes a slot. A layout whose
/// chunks or columns differ must also give them other keys, because a program that remembers a slot
/// reads its chunk, and changes its device, without reading this number ([`find`](super::find),
/// [`change`](super::change)).
pub(super) const LAYOUT: u64 = 2;

/// What is said of a shard with another layout; its number, and that of this one, come after it.
const OTHER_LAYOUT: &str = "the app's devices were written by another version of this program; \
                            remove the app and register them again (theirs and this layout: ";

/// Refuses a shard that has devices in another layout than this one.
pub(super) fn check(height: u64, layout: Option<u64>) -> Result<(), IndexError> {
    let layout = layout.unwrap_or(1);
    if height == 0 || layout == LAYOUT {
        return Ok(());
    }
    // It waits for a program that can read it, or for the operator.
    Err(IndexError::Refused(format!("{OTHER_LAYOUT}{layout}, {LAYOUT})").into()))
}

/// The shards of an app. Every stored device depends on it: it cannot change.
pub(super) const SHARDS: u32 = 64;

/// Slots whose records share one string. More would spread the cost of a key (about 80 bytes)
/// thinner; fewer make reading and changing one device cheaper, above all in a script, because
/// Lua hashes every byte of every string it is handed.
pub(super) const CHUNK_SLOTS: u32 = 16;

/// Slots whose codes of one attribute share one string a plane, a multiple of [`CHUNK_SLOTS`].
/// With the headers of Redis a full one is just below 32 KiB, a size class of its allocator.
pub(super) const SEGMENT_SLOTS: u32 = 2046 * CHUNK_SLOTS;

/// Bytes of a time: Unix milliseconds, big-endian.
pub(super) const TIME_LEN: usize = 6;

/// Mean number of devices in a bucket of the map from client id to slot; the same trade as for
/// [`CHUNK_SLOTS`]. With 24, an import of ten million took Redis 44.8 s in place of 39.2.
pub(super) const BUCKET_LOAD: u32 = 48;

/// The most slots of a shard; above a billion devices an app.
pub(super) const MAX_SLOTS: u32 = 1 << 26;

/// Bytes of the part of a client id's hash that stands in the map. Two clients that share it are
/// told apart by their records.
pub(super) const TAG_LEN: usize = 5;

/// Bytes of an entry of a bucket: a tag, and the slot as a big-endian number.
pub(super) const ENTRY_LEN: usize = TAG_LEN + 4;

/// Where a client id belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) shard: u32,
    pub(super) tag: [u8; TAG_LEN],
}

impl Place {
    /// A cryptographic hash, because devices choose their ids and must not be able to crowd one
    /// shard or bucket.
    pub(super) fn of(client: &ClientId) -> Self {
        let digest: [u8; 32] = Sha256::digest(client.as_str()).into();
        let [first, tag @ ..] = digest;
        let mut place = Self { shard: u32::from(first) % SHARDS, tag: [0; TAG_LEN] };
        place.tag.copy_from_slice(&tag[..TAG_LEN]);
        place
    }

    /// The bucket of the client in a shard that has so many: linear hashing over the smallest power
    /// of two that is not below their number.
    pub(super) fn bucket(&self, buckets: u32) -> u32 {
        let [a, b, c, d, _] = self.tag;
        let span = buckets.checked_next_power_of_two().unwrap_or(1 << 31);
        let bucket = u32::from_be_bytes([a, b, c, d]) % span;
        if bucket < buckets { bucket } else { bucket - span / 2 }
    }

    /// An order in which the clients of a shard, and those of a bucket, stand together, however
    /// many buckets there are: a bucket's number is the low bits of the hash, as many as it takes.
    /// Those with the same tag stand next to each other.
    pub(super) fn storage_order(&self) -> u64 {
        let [a, b, c, d, rest] = self.tag;
        let in_map = u64::from(u32::from_be_bytes([a, b, c, d]).reverse_bits()) << 8;
        u64::from(self.shard) << 40 | in_map | u64::from(rest)
    }
}

/// The constants, for scripts.
pub(super) fn constants_lua() -> String {
    format!(
        "local CHUNK, SEGMENT, LOAD, MAX_SLOTS, TAG, TIME, ATTRIBUTES = \
         {CHUNK_SLOTS}, {SEGMENT_SLOTS}, {BUCKET_LOAD}, {MAX_SLOTS}, {TAG_LEN}, {TIME_LEN}, {}\n\
         local LAYOUT, OTHER_LAYOUT = '{LAYOUT}', {OTHER_LAYOUT:?}\n\
         local CORRUPT, OTHER_VERSION = '{CORRUPT}', '{OTHER_VERSION}'\n",
        push_model::attributes::Attribute::COUNT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u32) -> Place {
        Place::of(&format!("c{n}").parse().unwrap())
    }

    #[test]
    fn where_a_client_id_belongs_never_changes() {
        let place = Place::of(&"c1".parse().unwrap());
        assert_eq!((place.shard, place.tag), (0xd0 % SHARDS, [0xf6, 0x31, 0xca, 0x1d, 0xdb]));
    }

    #[test]
    fn the_clients_of_a_shard_stand_together() {
        let mut places: Vec<_> = (0..2000).map(place).collect();
        places.sort_by_key(Place::storage_order);
        assert!(places.is_sorted_by_key(|place| place.shard));
        assert_eq!((places[0].shard, places[1999].shard), (0, SHARDS - 1));
    }

    #[test]
    fn the_clients_of_a_bucket_stand_together_however_many_buckets_there_are() {
        // All of one shard, because each shard has buckets of its own.
        let mut places: Vec<_> = (0..2000).map(|n| Place { shard: 0, ..place(n) }).collect();
        places.sort_by_key(Place::storage_order);
        for buckets in [1_u32, 2, 3, 8, 11, 100] {
            let mut runs: Vec<u32> = places.iter().map(|place| place.bucket(buckets)).collect();
            runs.dedup();
            let mut each = runs.clone();
            each.sort_unstable();
            each.dedup();
            assert_eq!(runs.len(), each.len(), "a bucket of {buckets} is not in one run");
            assert_eq!(each.len(), buckets as usize, "every bucket has somebody");
        }
    }

    #[test]
    fn a_segment_holds_whole_chunks() {
        assert_eq!(SEGMENT_SLOTS % CHUNK_SLOTS, 0);
    }

    #[test]
    fn two_bytes_name_a_slot_of_a_segment() {
        assert!(u16::try_from(SEGMENT_SLOTS).is_ok());
    }
}
