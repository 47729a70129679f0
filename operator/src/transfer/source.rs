//! Devices that can be read from any position, so that an interrupted transfer can go on.

use anyhow::Context as _;
use async_trait::async_trait;
use push_index::{Index, Scanned};
use push_model::{
    app::{App, AppKey},
    custom::Declarations,
    slots::SlotRange,
    transfer::{Position, Registration},
};

/// The least devices of a batch, unless the source ends. The target sorts them, so that neighbours
/// share its work. With the longest tokens a batch takes 70 MB.
const BATCH_DEVICES: usize = 16_384;

/// Some devices, in the order of the source.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) devices: Vec<Registration>,
    /// The number of devices whose records cannot be read.
    pub(super) unreadable: u64,
    /// The position of the next batch; none at the end.
    pub(super) next: Option<Position>,
}

/// The devices of an app in a store or in a file.
#[async_trait]
pub(super) trait Source: Send + Sync {
    /// Returns about how many there are, for the progress.
    fn count(&self) -> u64;

    /// Reads the next devices from this position on. Every batch but the last brings the position forward.
    ///
    /// # Errors
    /// If they cannot be read.
    async fn batch(&self, from: Position) -> anyhow::Result<Batch>;
}

/// The devices of an app in a store. A device that stays registered is read exactly once; one that
/// comes or goes meanwhile may be read or not.
pub(super) struct StoredDevices<'a> {
    index: &'a dyn Index,
    app: AppKey,
    /// Values of other attributes, which a store has until a sweep, stay there.
    declared: Declarations,
    /// Sorted by their shards.
    ranges: Vec<SlotRange>,
    count: u64,
}

impl<'a> StoredDevices<'a> {
    pub(super) async fn of(index: &'a dyn Index, app: &App) -> anyhow::Result<Self> {
        let (app, declared) = (AppKey::from(app), app.attributes.clone());
        let mut ranges = index.extent(&app).await?;
        ranges.sort_unstable_by_key(|range| (range.shard, range.from));
        let count = index.count_devices(&app).await?;
        Ok(Self { index, app, declared, ranges, count })
    }

    /// Returns the first range of the slots that are left from this position on, cut at the position.
    fn first_from(&self, from: Position) -> Option<SlotRange> {
        self.ranges.iter().find_map(|range| {
            if range.shard < from.shard {
                return None;
            }
            let cut =
                if range.shard == from.shard { range.from.max(from.slot) } else { range.from };
            (cut < range.to).then_some(SlotRange { from: cut, ..*range })
        })
    }
}

#[async_trait]
impl Source for StoredDevices<'_> {
    fn count(&self) -> u64 {
        self.count
    }

    async fn batch(&self, from: Position) -> anyhow::Result<Batch> {
        let mut batch = Batch { next: Some(from), ..Batch::default() };
        while batch.devices.len() < BATCH_DEVICES
            && let Some(at) = batch.next
        {
            let Some(range) = self.first_from(at) else {
                batch.next = None;
                break;
            };
            let room = BATCH_DEVICES - batch.devices.len();
            let scanned = self.index.list_registrations(&self.app, range, room).await;
            let Scanned { items, unreadable, next } =
                scanned.context("the devices cannot be read to their end")?;
            batch.devices.extend(items.into_iter().map(|mut registration| {
                registration.device.profile.retain_declared(&self.declared);
                registration
            }));
            batch.unreadable += unreadable;
            let slot = next.unwrap_or(range.to);
            batch.next = Some(Position { shard: range.shard, slot });
        }
        batch.next = batch.next.filter(|at| self.first_from(*at).is_some());
        Ok(batch)
    }
}
