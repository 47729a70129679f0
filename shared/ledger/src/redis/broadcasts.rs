//! The broadcasts that are not finished: one hash, a field for each message.

use async_trait::async_trait;
use push_model::{ids::MessageId, open_broadcast::OpenBroadcast};
use push_store::{IndexError, redis::connection::reply};

use super::RedisLedger;
use crate::{OpenBroadcasts, broadcasts::MAX_LISTED};

#[async_trait]
impl OpenBroadcasts for RedisLedger {
    async fn list_broadcast(&self, broadcast: &OpenBroadcast) -> Result<(), IndexError> {
        let mut list = self.scripts.list_broadcast.call(&[&self.keys.broadcasts()]);
        list.arg(broadcast.message_id.to_string()).arg(broadcast.encode()).arg(MAX_LISTED);
        list.run(&self.quick).await.map(drop)
    }

    async fn set_devices_left(
        &self,
        message: &MessageId,
        partition: u32,
        left: u32,
    ) -> Result<(), IndexError> {
        let mut set = self.scripts.set_devices_left.call(&[&self.keys.broadcasts()]);
        set.arg(message.to_string()).arg(partition).arg(&left.to_le_bytes()[..]);
        set.run(&self.quick).await.map(drop)
    }

    async fn unlist_broadcast(&self, message: &MessageId) -> Result<(), IndexError> {
        let mut unlist = redis::cmd("HDEL");
        unlist.arg(self.keys.broadcasts()).arg(message.to_string());
        // A write that may be repeated like a read.
        self.quick.read(&unlist).await.map(drop)
    }

    async fn open_broadcasts(&self) -> Result<Vec<OpenBroadcast>, IndexError> {
        let mut read = redis::cmd("HGETALL");
        read.arg(self.keys.broadcasts());
        let mut broadcasts = Vec::new();
        let mut fields = reply::list(self.bulk.read(&read).await?)?.into_iter();
        while let (Some(message), Some(value)) = (fields.next(), fields.next()) {
            let value = reply::bytes(value)?.unwrap_or_default();
            let message = reply::text(message)?.parse().ok();
            let read = message.and_then(|message| OpenBroadcast::decode(message, &value));
            broadcasts.extend(read);
        }
        Ok(broadcasts)
    }
}
