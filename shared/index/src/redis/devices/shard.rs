//! The size of a shard, as it stores it.

use futures::future;
use push_model::{app::AppKey, device::Carrier, slots::SlotRange};
use push_store::{
    IndexError,
    redis::{connection::reply, keys::ShardKeys},
};

use crate::{
    CarrierExtent,
    redis::{
        RedisIndex,
        layout::{self, SHARDS, carrier_byte},
    },
};

/// The size of a shard. The default is an empty shard.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::redis) struct ShardSize {
    /// Slots that were ever taken.
    pub(in crate::redis) height: u32,
    /// Devices.
    pub(super) live: u64,
    /// The number of devices in the partition of each carrier, in the order of
    /// [`Carrier::ALL`].
    by_carrier: [u64; Carrier::COUNT],
}

/// The slots of the shards that have devices of each carrier.
pub(super) fn carrier_extents(sizes: &[ShardSize]) -> Vec<CarrierExtent> {
    let of = |(place, carrier): (usize, Carrier)| {
        let has_some = |size: &ShardSize| size.by_carrier.get(place).is_some_and(|n| *n > 0);
        let shards = (0..SHARDS).zip(sizes).filter(|(_, size)| has_some(size) && size.height > 0);
        let ranges = shards.map(|(shard, size)| SlotRange { shard, from: 0, to: size.height });
        CarrierExtent { carrier, ranges: ranges.collect() }
    };
    let extents = Carrier::ALL.into_iter().enumerate().map(of);
    extents.filter(|extent| !extent.ranges.is_empty()).collect()
}

impl RedisIndex {
    /// The sizes of all shards, in order.
    pub(super) async fn shard_sizes(&self, app: &AppKey) -> Result<Vec<ShardSize>, IndexError> {
        let keys = (0..SHARDS).map(|shard| self.keys.shard(app, shard));
        future::try_join_all(keys.map(async |keys| self.shard_size(&keys).await)).await
    }

    /// The size of a shard; one that is being removed is empty for readers.
    pub(in crate::redis) async fn shard_size(
        &self,
        keys: &ShardKeys,
    ) -> Result<ShardSize, IndexError> {
        let mut get = redis::cmd("HMGET");
        get.arg(keys.base()).arg(&["height", "live", "layout", "gone"]);
        for carrier in Carrier::ALL {
            get.arg(format!("t{}", carrier_byte(carrier, None)));
        }
        let values = reply::list(self.quick.read(&get).await?)?;
        let mut values = values.into_iter().map(reply::number);
        let mut next = || values.next().unwrap_or(Ok(None));
        let (height, live, layout, gone) = (next()?, next()?, next()?, next()?);
        if gone.is_some() {
            return Ok(ShardSize::default());
        }
        let (height, live) = (height.unwrap_or(0), live.unwrap_or(0));
        layout::check(height, layout)?;
        let mut by_carrier = [0; Carrier::COUNT];
        for count in &mut by_carrier {
            *count = next()?.unwrap_or(0);
        }
        Ok(ShardSize { height: u32::try_from(height).unwrap_or(u32::MAX), live, by_carrier })
    }
}
