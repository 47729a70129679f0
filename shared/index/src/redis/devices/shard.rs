//! What a shard stores about itself.

use futures::future;
use push_model::app::AppKey;

use crate::{
    IndexError,
    redis::{
        RedisIndex,
        connection::reply,
        keys::ShardKeys,
        layout::{self, SHARDS},
    },
};

/// How large a shard is. The default is an empty shard.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::redis) struct ShardSize {
    /// Slots that were ever taken.
    pub(in crate::redis) height: u32,
    /// Devices.
    pub(super) live: u64,
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
        let values = reply::list(self.quick.read(&get).await?)?;
        let mut values = values.into_iter().map(reply::number);
        let mut next = || values.next().unwrap_or(Ok(None));
        let (height, live, layout, gone) = (next()?, next()?, next()?, next()?);
        if gone.is_some() {
            return Ok(ShardSize::default());
        }
        let (height, live) = (height.unwrap_or(0), live.unwrap_or(0));
        layout::check(height, layout)?;
        Ok(ShardSize { height: u32::try_from(height).unwrap_or(u32::MAX), live })
    }
}
