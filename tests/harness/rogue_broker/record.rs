//! The record of the broker.

use std::collections::BTreeMap;

/// Counts since the broker was started.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Number of times that each message was sent to each topic, by message id and topic.
    by_message: BTreeMap<String, BTreeMap<String, u32>>,
    pub(super) received: u64,
    pub(super) acknowledged: u64,
}

impl Record {
    pub(super) fn count(&mut self, message_id: &str, topic: &str) {
        self.received += 1;
        let topics = self.by_message.entry(message_id.to_owned()).or_default();
        *topics.entry(topic.to_owned()).or_default() += 1;
    }

    pub(super) fn received_by_topic(&self, message_id: &str) -> BTreeMap<String, u32> {
        self.by_message.get(message_id).cloned().unwrap_or_default()
    }
}
