//! The parts of a program that its engines are: the queue, the index, and the ledger's own store.
//! Each is checked by writing, because a store that answers may still store nothing.

use std::sync::Arc;

use push_index::{Index, IndexError, TakesWrites};
use push_model::causes::with_causes;
use push_queue::Queue;

use crate::health::{Health, Need, State, state_of};

/// Watches whether the queue takes messages.
pub fn watch_queue(health: &Health, queue: &Arc<dyn Queue>) {
    let queue = Arc::clone(queue);
    health.watch("queue", Need::Required, move || {
        let queue = Arc::clone(&queue);
        async move { state_of(queue.ping().await) }
    });
}

/// Watches whether the index takes writes, and the ledger's own store if there is one.
pub fn watch_index(health: &Health, need: Need, index: &Arc<dyn Index>) {
    let watched = Arc::clone(index);
    health.watch("index", need, move || {
        let index = Arc::clone(&watched);
        async move { of_store(index.takes_writes().await) }
    });
    if index.ledger_store().is_some() {
        let watched = Arc::clone(index);
        health.watch("ledger", need, move || {
            let index = Arc::clone(&watched);
            async move {
                match index.ledger_store() {
                    Some(ledger) => of_store(ledger.takes_writes().await),
                    None => State::Ok,
                }
            }
        });
    }
}

fn of_store(written: Result<TakesWrites, IndexError>) -> State {
    match written {
        Ok(TakesWrites { unreachable }) if unreachable.is_empty() => State::Ok,
        Ok(TakesWrites { unreachable }) => State::Degraded(unreachable.join("; ")),
        Err(error) => State::Failed(with_causes(&error)),
    }
}
