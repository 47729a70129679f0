//! The devices that are left of a broadcast.
//!
//! The task lane holds at most as many tasks of a broadcast as it has partitions, so its depth says
//! nothing about the work that is left. The ledger lists the broadcasts in work, with the devices
//! left in each partition. The entries stay the truth: this list is for metrics and for scaling,
//! and no step of the delivery depends on it.
//!
//! Both engines store the same bytes, in which the devices left of a partition are at a fixed place,
//! so that a store can change them without reading the rest: a version, the end as eight bytes, the
//! number of partitions as four, four bytes for each partition, all little-endian, and the app's
//! key as text.

use crate::{
    app::AppKey,
    ids::{AppId, MessageId},
    time::UnixMillis,
};

/// The version of the bytes.
const VERSION: u8 = 1;
/// The bytes before those of the first partition.
pub const HEADER: usize = 1 + 8 + 4;
/// The bytes of a partition.
pub const PARTITION: usize = 4;

/// A broadcast that has devices left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenBroadcast {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app: AppKey,
    /// After this time nothing of it is sent any more.
    pub ends_at: UnixMillis,
    /// About how many devices are left of each partition. Until a partition was worked on, these
    /// are its slots.
    pub devices_left: Vec<u32>,
}

impl OpenBroadcast {
    /// About how many devices are left of all partitions.
    pub fn total_left(&self) -> u64 {
        self.devices_left.iter().map(|left| u64::from(*left)).sum()
    }

    /// All but the id, as the stores keep it.
    pub fn encode(&self) -> Vec<u8> {
        let Self { app, ends_at, devices_left, .. } = self;
        let mut bytes = vec![VERSION];
        bytes.extend(ends_at.0.to_le_bytes());
        // No plan has more than `MOST_PARTITIONS`.
        bytes.extend(u32::try_from(devices_left.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(devices_left.iter().flat_map(|left| left.to_le_bytes()));
        bytes.extend(format!("{}/{}", app.generation, app.id.as_str()).into_bytes());
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote. None if the version is another, or the bytes are
    /// damaged.
    pub fn decode(message_id: MessageId, bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (ends_at, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let (partitions, app) = rest.split_at_checked(count.checked_mul(PARTITION)?)?;
        let (generation, id) = str::from_utf8(app).ok()?.split_once('/')?;
        let app = AppKey { id: id.parse::<AppId>().ok()?, generation: generation.parse().ok()? };
        let (partitions, _) = partitions.as_chunks();
        let devices_left = partitions.iter().map(|left| u32::from_le_bytes(*left)).collect();
        let ends_at = UnixMillis(u64::from_le_bytes(*ends_at));
        (*version == VERSION).then_some(Self { message_id, app, ends_at, devices_left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AudienceKind;

    fn broadcast() -> OpenBroadcast {
        let app = AppKey { id: "a".parse().unwrap(), generation: 3 };
        let message_id = MessageId::issue(&app.id, AudienceKind::Broadcast);
        let devices_left = vec![7, 0, u32::MAX];
        OpenBroadcast { message_id, app, ends_at: UnixMillis(1 << 40), devices_left }
    }

    #[test]
    fn a_broadcast_keeps_its_bytes_and_each_partition_its_place() {
        let broadcast = broadcast();
        let mut bytes = broadcast.encode();
        assert_eq!(OpenBroadcast::decode(broadcast.message_id, &bytes), Some(broadcast.clone()));
        assert_eq!(broadcast.total_left(), 7 + u64::from(u32::MAX));
        let second = HEADER + PARTITION;
        bytes[second..second + PARTITION].copy_from_slice(&9_u32.to_le_bytes());
        let changed = OpenBroadcast { devices_left: vec![7, 9, u32::MAX], ..broadcast };
        assert_eq!(OpenBroadcast::decode(changed.message_id, &bytes), Some(changed));
    }

    #[test]
    fn other_versions_and_damaged_bytes_are_not_read() {
        let broadcast = broadcast();
        let bytes = broadcast.encode();
        let read = |bytes: &[u8]| OpenBroadcast::decode(broadcast.message_id, bytes);
        for length in 0..HEADER + 3 * PARTITION + 2 {
            assert_eq!(read(&bytes[..length]), None, "{length}");
        }
        assert_eq!(read(&[&[VERSION + 1], &bytes[1..]].concat()), None);
        assert_eq!(read(&[&bytes[..9], &[0xff; 4], &bytes[13..]].concat()), None);
    }
}
