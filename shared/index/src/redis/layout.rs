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
//!
//! The planes of a custom attribute only reach as far as devices have values of it; missing bytes are 0. Topics are no
//! column, because a device has any number of them: each topic has a list of the slots of a segment whose devices
//! have it ([`members_mask`]).

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

/// The bit of a record's byte of flags that says that there is a profile.
pub(super) const HAS_PROFILE: u8 = 0x20;

/// Bytes of the number before a bitmap of the devices that have a topic, which says how many they are.
const MEMBERS_COUNT_LEN: usize = 3;

/// Returns a byte for each slot of a segment from `from` to before `to`: 1 if its device is among these members of a
/// topic. Empty if none is. The members are their slots as big-endian numbers of two bytes, in order; or, where that is
/// longer, a bitmap behind their number. The length of a bitmap is odd.
pub(super) fn members_mask(mask: &mut Vec<u8>, members: &[u8], from: u32, to: u32) {
    let width = to.saturating_sub(from) as usize;
    if members.is_empty() {
        return;
    }
    mask.resize(width, 0);
    if members.len().is_multiple_of(2) {
        for slot in members.as_chunks::<2>().0 {
            let slot = u32::from(u16::from_be_bytes(*slot));
            if let Some(byte) = slot.checked_sub(from).and_then(|at| mask.get_mut(at as usize)) {
                *byte = 1;
            }
        }
    } else {
        let bits = members.get(MEMBERS_COUNT_LEN..).unwrap_or_default();
        for (byte, slot) in mask.iter_mut().zip(from..) {
            let eight = bits.get((slot / 8) as usize).copied().unwrap_or_default();
            *byte |= eight >> (7 - slot % 8) & 1;
        }
    }
}

/// Hash values of user ids, each with a key of its own for its users.
pub(super) const USER_HASHES: u16 = 256;

/// The hash of a user id, which says under which key its devices are. Cryptographic, because user ids come from
/// clients and must not be able to fill one key on purpose.
pub(super) fn user_hash(user: &str) -> u8 {
    let digest: [u8; 32] = Sha256::digest(user).into();
    digest[0]
}

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
         local HAS_PROFILE, COUNT_FORMAT = {HAS_PROFILE}, '>I{MEMBERS_COUNT_LEN}'\n\
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
    fn members_are_read_from_a_list_and_from_a_bitmap() {
        let list = [[0, 0], [0, 9], [0x20, 1]].concat();
        let mut bits = vec![0; MEMBERS_COUNT_LEN + SEGMENT_SLOTS as usize / 8];
        assert_eq!(bits.len() % 2, 1);
        for slot in [0, 9, 0x2001] {
            bits[MEMBERS_COUNT_LEN + slot / 8] |= 0x80 >> (slot % 8);
        }
        for members in [&list, &bits] {
            let masked = |from, to| {
                let mut mask = Vec::new();
                members_mask(&mut mask, members, from, to);
                mask
            };
            assert_eq!(masked(0, 10), [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            assert_eq!(masked(9, 11), [1, 0]);
            assert_eq!(masked(0x2000, 0x2003), [0, 1, 0]);
        }
        let mut none = Vec::new();
        members_mask(&mut none, &[], 0, 9);
        assert!(none.is_empty());
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
