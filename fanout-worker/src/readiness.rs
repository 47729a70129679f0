//! Whether a worker can do its work now: it needs queue, index, transports, and an open consumer for
//! each lane. A worker is not ready while its queue or index stores nothing (a full disk, an alarm, a
//! replica), because what remains of a task has to be published and what was sent has to be saved.

use std::sync::Arc;

use push_queue::Lane;
use push_service::{
    engines::{watch_index, watch_queue},
    operations::health::{Health, Need, State},
};

use crate::dependencies::Dependencies;

/// Watches the parts of a worker.
pub fn watch(health: &Health, dependencies: &Dependencies) {
    watch_queue(health, &dependencies.queue);
    watch_index(health, Need::Required, &dependencies.index);
    for (kind, transport) in dependencies.transports.each() {
        let transport = Arc::clone(transport);
        health.watch(&format!("transport {kind}"), Need::Required, move || {
            let transport = Arc::clone(&transport);
            async move { state(transport.ready().await, "no connection is up") }
        });
    }
    for lane in Lane::ALL {
        let lanes = dependencies.lanes.clone();
        health.watch(&format!("lane {}", lane.name()), Need::Required, move || {
            let is_open = lanes.is_open(lane);
            async move { state(is_open, "not consumed: the consumer is not open") }
        });
    }
}

fn state(works: bool, why_not: &str) -> State {
    if works { State::Ok } else { State::Failed(why_not.to_owned()) }
}
