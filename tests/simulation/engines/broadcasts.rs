//! The list of broadcasts that are not finished. Nothing that is promised depends on it, so its calls
//! are no steps that can fail.

use async_trait::async_trait;
use push_ledger::OpenBroadcasts;
use push_model::{ids::MessageId, open_broadcast::OpenBroadcast};
use push_store::IndexError;

use crate::{engines::index::SimIndex, world::lock};

#[async_trait]
impl OpenBroadcasts for SimIndex {
    async fn list_broadcast(&self, broadcast: &OpenBroadcast) -> Result<(), IndexError> {
        let listed = &mut lock(&self.0.world().store).open_broadcasts;
        listed.entry(broadcast.message_id).or_insert_with(|| broadcast.clone());
        Ok(())
    }

    async fn set_devices_left(
        &self,
        message: &MessageId,
        partition: u32,
        left: u32,
    ) -> Result<(), IndexError> {
        let listed = &mut lock(&self.0.world().store).open_broadcasts;
        if let Some(broadcast) = listed.get_mut(message)
            && let Some(of_partition) = broadcast.devices_left.get_mut(partition as usize)
        {
            *of_partition = left;
            if broadcast.total_left() == 0 {
                listed.remove(message);
            }
        }
        Ok(())
    }

    async fn unlist_broadcast(&self, message: &MessageId) -> Result<(), IndexError> {
        lock(&self.0.world().store).open_broadcasts.remove(message);
        Ok(())
    }

    async fn open_broadcasts(&self) -> Result<Vec<OpenBroadcast>, IndexError> {
        Ok(lock(&self.0.world().store).open_broadcasts.values().cloned().collect())
    }
}
