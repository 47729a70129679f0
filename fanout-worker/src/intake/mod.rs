//! Queue messages: taken from a lane, processed, and settled.
//!
//! The queue's prefetch is the only bound needed: there are never more handlers than unsettled
//! deliveries.
//!
//! - here: takes messages from a lane, has each processed, and settles it
//! - `jobs`: the job lane: envelopes of accepted pushes
//! - `tasks`: the task lane: partitions of messages, and closing checks
//! - `closing`: the check that the ledger entry of a broadcast closes
//! - `disposition`: decides what happens to a queue message after a run (pure)
//! - `carry_out`: publishes what a disposition asks for
//! - `settling`: acknowledges, requeues or dead-letters a message
//! - `isolation`: envelopes that may be what ends the worker's process, one at a time

mod carry_out;
mod closing;
mod disposition;
pub(crate) mod isolation;
mod jobs;
mod settling;
mod tasks;

use std::sync::Arc;

use push_queue::{Delivery, QueueError, WorkLane};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use self::{isolation::isolate, settling::settle};
use crate::{context::Context, in_work::InWork, lane_health::LaneHealth, spans};

/// Consumes a lane until the worker stops.
pub(crate) async fn consume(
    context: Arc<Context>,
    lane: WorkLane,
    prefetch: u16,
    stopping: CancellationToken,
    handlers: TaskTracker,
    in_work: InWork,
    lanes: LaneHealth,
) -> Result<(), QueueError> {
    let consume = || context.queue.consume(lane.into(), prefetch);
    let Some(mut consumer) = context.retrier.open_consumer(&stopping, consume).await? else {
        return Ok(());
    };
    let _open = lanes.enter(lane.into(), consumer.connected());
    loop {
        let delivery = tokio::select! {
            biased;
            () = stopping.cancelled() => return Ok(()),
            delivery = consumer.next() => delivery?,
        };
        let span = spans::delivery(lane.into(), delivery.deliveries);
        let guards = (
            in_work.enter(span.clone(), delivery.payload.len(), context.now()),
            context.metrics.in_work(lane),
        );
        let (context, stopping) = (context.clone(), stopping.clone());
        let handle = async move {
            handle(&context, lane, delivery, &stopping).await;
            drop(guards);
        };
        handlers.spawn(handle.instrument(span));
    }
}

/// Processes one message and settles it.
async fn handle(
    context: &Context,
    lane: WorkLane,
    delivery: Delivery,
    stopping: &CancellationToken,
) {
    let _interactive = (lane == WorkLane::Jobs).then(|| context.priority.interactive());
    let is_ours = || delivery.is_ours();
    let hold = context.retrier.hold(&is_ours, stopping);
    let result = match isolate(context, lane, &delivery, &hold).await {
        Some(result) => result,
        None => match lane {
            WorkLane::Jobs => jobs::process(context, &delivery, &hold).await,
            WorkLane::Tasks => tasks::process(context, &delivery, &hold).await,
        },
    };
    settle(context, lane, delivery, result).await;
}
