//! Reports if this ingest can do its work now, and so should be sent requests.

use std::sync::Arc;

use push_boot::{
    engines::{Stores, watch_index, watch_queue},
    health::{Health, Need},
};
use push_queue::Queue;

/// Watches the parts of an ingest. It is ready while the queue takes messages. The index may be
/// unavailable, because apps that are cached can push without it: its state is only reported.
pub fn watch(health: &Health, queue: &Arc<dyn Queue>, stores: &Stores) {
    watch_queue(health, queue);
    watch_index(health, Need::Reported, stores);
}
