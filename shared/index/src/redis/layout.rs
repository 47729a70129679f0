//! The layout of devices in Redis: the sizes that readers and scripts agree on, and the hash of a
//! client id that says where the device is kept.
//!
//! An app's devices are spread over [`SHARDS`] shards. In a shard a device has a slot. A device is
//! stored twice: as a *record* in a chunk, which is authoritative, and as attribute codes in
//! columns, which are an index to the records. A reader finds candidates in the columns and decides
//! on their records, so its answer is right although columns and records are read at different
//! times.
//!
//! A column is two planes of one byte a slot, the low and the high bytes of the codes. Most columns
//! have only the low plane: few attributes have more than 255 values, and reading the columns is
//! nearly all that targeting costs. One more column, of one plane, has the carriers
//! ([`carrier_byte`]).

use push_model::{
    device::{Carrier, TransportKind},
    ids::ClientId,
    registration::{CARRIER_CHANGE_KEPT, CARRIER_CHANGES_JOINED},
};
use push_store::{
    IndexError, Refusal, RefusalReason,
    redis::connection::{CORRUPT, OTHER_VERSION},
};
use sha2::{Digest, Sha256};

/// The number of this layout, which every shard stores, because another layout would be misread
/// without an error. A layout whose chunks or columns differ must also give them other keys: a
/// program that has a slot in its cache reads the chunk, and changes the device, without reading
/// this number ([`find`](super::devices::find), [`change`](super::devices::registration::change)).
pub(super) const LAYOUT: u64 = 1;

/// The error for a shard with another layout, to which its number and [`LAYOUT`] are appended.
const OTHER_LAYOUT: &str = "the app's devices were written by another version of this program; \
                            remove the app and register them again (theirs and this layout: ";

/// Refuses a shard that has devices in another layout.
pub(super) fn check(height: u64, layout: Option<u64>) -> Result<(), IndexError> {
    if height == 0 || layout == Some(LAYOUT) {
        return Ok(());
    }
    let layout = layout.unwrap_or(0);
    // Not corrupt: another version of the program can read it, or the operator removes the app.
    let text = format!("{OTHER_LAYOUT}{layout}, {LAYOUT})");
    Err(IndexError::Refused(Refusal { reason: RefusalReason::OtherVersion, text }.into()))
}

/// The shards of an app. Cannot change, because it decides where every stored device is.
pub(super) const SHARDS: u32 = 64;

/// Slots whose records share one string. More slots spread the cost of a key (about 80 bytes) over
/// more devices; fewer make reading and changing one device cheaper, above all in a script, because
/// Lua hashes every string that it receives.
pub(super) const CHUNK_SLOTS: u32 = 16;

/// Slots whose codes of one attribute share one string a plane; a multiple of [`CHUNK_SLOTS`].
/// With Redis' headers a full string is just below 32 KiB, a size class of its allocator.
pub(super) const SEGMENT_SLOTS: u32 = 2046 * CHUNK_SLOTS;

/// Bytes of a stored time: Unix milliseconds, big-endian.
pub(super) const TIME_LEN: usize = 6;

/// Bytes of the [epoch](push_model::registration::RegistrationEpoch) of a registration, big-endian.
pub(super) const EPOCH_LEN: usize = 6;

/// Bytes of a change of carrier in a record.
pub(super) const CHANGE_LEN: usize = 2 + TIME_LEN;

/// The bit of a record's byte of flags that says that there is a change of carrier. The lowest four bits are the
/// carrier's code.
pub(super) const HAS_CHANGE: u8 = 0x40;

/// Returns what the carrier column stores for a device: the lowest four bits are the code, and
/// one, of the carrier in whose partitions it is, the highest four those of the one before, or 0
/// if no change is remembered. 0 stands for a free slot.
pub(super) const fn carrier_byte(carrier: Carrier, before: Option<Carrier>) -> u8 {
    let before = match before {
        Some(before) => before.code() + 1,
        None => 0,
    };
    before << 4 | (carrier.code() + 1)
}

/// Returns the transport in whose partitions a device with this byte of the carrier column is; none for
/// a free slot.
pub(super) fn transport_of_byte(byte: u8) -> Option<TransportKind> {
    Some(Carrier::from_code((byte & 0xf).checked_sub(1)?)?.kind())
}

/// Mean number of devices in a bucket of the map from client id to slot; the same trade-off as for
/// [`CHUNK_SLOTS`]. With 24, an import of ten million took Redis 44.8 s instead of 39.2.
pub(super) const BUCKET_LOAD: u32 = 48;

/// The most slots of a shard; enough for more than a billion devices an app.
pub(super) const MAX_SLOTS: u32 = 1 << 26;

/// Bytes of the tag, the part of a client id's hash that is stored in the map. Two clients with the
/// same tag are told apart by their records.
pub(super) const TAG_LEN: usize = 5;

/// Bytes of an entry of a bucket: a tag, and the slot as a big-endian number.
pub(super) const ENTRY_LEN: usize = TAG_LEN + 4;

/// The hash of a client id, which says where its device is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ClientHash {
    pub(super) shard: u32,
    /// Selects the bucket of the shard's map, and finds the entry in it.
    pub(super) tag: [u8; TAG_LEN],
}

impl ClientHash {
    /// A cryptographic hash, because devices choose their ids and must not be able to fill one
    /// shard or bucket on purpose.
    pub(super) fn of(client: &ClientId) -> Self {
        let digest: [u8; 32] = Sha256::digest(client.as_str()).into();
        let [first, tag @ ..] = digest;
        let mut hash = Self { shard: u32::from(first) % SHARDS, tag: [0; TAG_LEN] };
        hash.tag.copy_from_slice(&tag[..TAG_LEN]);
        hash
    }

    /// The client's bucket in a shard that has `buckets` buckets: linear hashing over the smallest
    /// power of two that is not below `buckets`.
    pub(super) fn bucket(&self, buckets: u32) -> u32 {
        let [a, b, c, d, _] = self.tag;
        let span = buckets.checked_next_power_of_two().unwrap_or(1 << 31);
        let bucket = u32::from_be_bytes([a, b, c, d]) % span;
        if bucket < buckets { bucket } else { bucket - span / 2 }
    }

    /// A sort key that puts the clients of a shard next to each other, and among them those of a
    /// bucket, however many buckets there are: the number of a bucket is the low bits of the hash,
    /// so the reversed bits sort by bucket. Clients with the same tag come next to each other.
    pub(super) fn storage_order(&self) -> u64 {
        let [a, b, c, d, rest] = self.tag;
        let bucket_order = u64::from(u32::from_be_bytes([a, b, c, d]).reverse_bits()) << 8;
        u64::from(self.shard) << 40 | bucket_order | u64::from(rest)
    }
}

/// These constants as Lua, for the scripts of a shard.
pub(super) fn constants_lua() -> String {
    format!(
        "local CHUNK, SEGMENT, LOAD, MAX_SLOTS, TAG, TIME, ATTRIBUTES = \
         {CHUNK_SLOTS}, {SEGMENT_SLOTS}, {BUCKET_LOAD}, {MAX_SLOTS}, {TAG_LEN}, {TIME_LEN}, {}\n\
         local EPOCH, CHANGE, HAS_CHANGE, CHANGE_KEPT, CHANGES_JOINED = \
         {}, {CHANGE_LEN}, {HAS_CHANGE}, {}, {}\n\
         local LAYOUT, OTHER_LAYOUT = '{LAYOUT}', {OTHER_LAYOUT:?}\n\
         local CORRUPT, OTHER_VERSION = '{CORRUPT}', '{OTHER_VERSION}'\n",
        push_model::attributes::Attribute::COUNT,
        EPOCH_LEN,
        CARRIER_CHANGE_KEPT.as_millis(),
        CARRIER_CHANGES_JOINED.as_millis(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u32) -> ClientHash {
        ClientHash::of(&format!("c{n}").parse().unwrap())
    }

    #[test]
    fn the_hash_of_a_client_id_never_changes() {
        let hash = ClientHash::of(&"c1".parse().unwrap());
        assert_eq!((hash.shard, hash.tag), (0xd0 % SHARDS, [0xf6, 0x31, 0xca, 0x1d, 0xdb]));
    }

    #[test]
    fn the_clients_of_a_shard_sort_next_to_each_other() {
        let mut hashes: Vec<_> = (0..2000).map(hash).collect();
        hashes.sort_by_key(ClientHash::storage_order);
        assert!(hashes.is_sorted_by_key(|hash| hash.shard));
        assert_eq!((hashes[0].shard, hashes[1999].shard), (0, SHARDS - 1));
    }

    #[test]
    fn the_clients_of_a_bucket_sort_next_to_each_other_however_many_buckets_there_are() {
        // All in one shard, because each shard has buckets of its own.
        let mut hashes: Vec<_> = (0..2000).map(|n| ClientHash { shard: 0, ..hash(n) }).collect();
        hashes.sort_by_key(ClientHash::storage_order);
        for buckets in [1_u32, 2, 3, 8, 11, 100] {
            let mut runs: Vec<u32> = hashes.iter().map(|hash| hash.bucket(buckets)).collect();
            runs.dedup();
            let mut each = runs.clone();
            each.sort_unstable();
            each.dedup();
            assert_eq!(runs.len(), each.len(), "a bucket of {buckets} is not in one run");
            assert_eq!(each.len(), buckets as usize, "a bucket of {buckets} is empty");
        }
    }

    #[test]
    fn a_segment_holds_whole_chunks() {
        assert_eq!(SEGMENT_SLOTS % CHUNK_SLOTS, 0);
    }

    #[test]
    fn a_slot_of_a_segment_fits_into_two_bytes() {
        assert!(u16::try_from(SEGMENT_SLOTS).is_ok());
    }
}
