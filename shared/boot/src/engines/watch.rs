//! Watches the engines of a program for `/readyz`: the queue, the index, and the ledger's own
//! store. Each check writes, because a store that answers may still store nothing.

use std::sync::Arc;

use push_model::causes::with_causes;
use push_queue::Queue;
use push_store::{IndexError, Store, TakesWrites};

use super::open::Stores;
use crate::health::{Health, Need, PartName, PartState, state_of};

/// The section of the runbook about stores.
pub(super) const STORE: &str = "a-store-is-unreachable-or-refuses-writes";
/// The section of the runbook about the queue.
pub(super) const QUEUE: &str = "rabbitmq-takes-no-messages";

/// Watches the queue: it works while it takes messages.
pub fn watch_queue(health: &Health, queue: &Arc<dyn Queue>) {
    let queue = Arc::clone(queue);
    health.watch(PartName::new("queue", QUEUE), Need::Required, move || {
        let queue = Arc::clone(&queue);
        async move { state_of(queue.ping().await) }
    });
}

/// Watches the index, and the ledger's own store if there is one: each works while it takes writes.
pub fn watch_index(health: &Health, need: Need, stores: &Stores) {
    watch_store(health, need, "index", stores.index.clone());
    if let Some(ledger) = stores.separate_ledger() {
        watch_store(health, need, "ledger", ledger.clone());
    }
}

fn watch_store(health: &Health, need: Need, part: &str, store: Arc<dyn Store>) {
    health.watch(PartName::new(part, STORE), need, move || {
        let store = Arc::clone(&store);
        async move { of_store(store.takes_writes().await) }
    });
}

fn of_store(written: Result<TakesWrites, IndexError>) -> PartState {
    match written {
        Ok(TakesWrites { unreachable }) if unreachable.is_empty() => PartState::Ok,
        Ok(TakesWrites { unreachable }) => PartState::Degraded(unreachable.join("; ")),
        Err(error) => PartState::Failed(with_causes(&error)),
    }
}
