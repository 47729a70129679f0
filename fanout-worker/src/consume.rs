//! Taking messages from a lane and giving each to its handler.
//!
//! The prefetch of the queue is the only bound needed: there are never more handlers than
//! undecided deliveries.

use std::sync::Arc;

use push_shared::queue::{Lane, QueueError};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{consuming::Consuming, core::Core, in_work::InWork, jobs, tasks};

/// Consumes a lane until the worker stops.
pub(crate) async fn consume(
    core: Arc<Core>,
    lane: Lane,
    prefetch: u16,
    stopping: CancellationToken,
    handlers: TaskTracker,
    in_work: InWork,
    consuming: Consuming,
) -> Result<(), QueueError> {
    let consume = || core.queue.consume(lane, prefetch);
    let Some(mut consumer) = core.patience.consume_until(&stopping, consume).await? else {
        return Ok(());
    };
    let _open = consuming.enter(lane, consumer.open());
    loop {
        let delivery = tokio::select! {
            biased;
            () = stopping.cancelled() => return Ok(()),
            delivery = consumer.next() => delivery?,
        };
        let guards =
            (in_work.enter(lane, delivery.payload.len(), core.now()), core.metrics.in_work(lane));
        let (core, stopping) = (core.clone(), stopping.clone());
        handlers.spawn(async move {
            match lane {
                Lane::Jobs => jobs::handle(&core, delivery, &stopping).await,
                Lane::Tasks => tasks::handle(&core, delivery, &stopping).await,
            }
            drop(guards);
        });
    }
}
