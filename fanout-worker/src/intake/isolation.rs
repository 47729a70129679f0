//! Isolates envelopes that may crash the worker's process.
//!
//! The queue counts a delivery for every message that a dead process held, so a high count proves
//! nothing about one of them. An envelope that was delivered [`ISOLATED_FROM`] times is moved to
//! the isolated lane without any work on it. Each worker takes one envelope at a time from there,
//! so the count in that lane grows only for the envelope that was in work. Harmless envelopes are
//! settled. The one that crashes its process each time is cut into single pushes, and the push that
//! still does so becomes a dead letter after [`MAX_DELIVERIES`].
//!
//! The lane is nearly always empty, so it has no permanent consumer: a worker looks every [`CHECK`]
//! and consumes the lane while it holds messages.

use std::{sync::Arc, time::Duration};

use push_model::envelope::{decode_job_envelope, encode_alone};
use push_queue::{Delivery, IsolatedEnvelope, Lane, MAX_DELIVERIES, QueueError, WorkLane};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument as _, warn};

use super::{
    jobs,
    settling::{ISOLATED_FROM, Requeue, put_aside, settle},
    tasks,
};
use crate::{context::Context, control::hold::Hold, in_work::InWork, spans};

/// From this many deliveries on in the isolated lane, an envelope of several pushes is cut into one
/// for each of them.
const CUT_FROM: u32 = 2;

/// Interval at which a worker looks into the lane.
const CHECK: Duration = Duration::from_secs(10);

/// Time after which its consumer ends if no message comes.
const IDLE: Duration = Duration::from_secs(2);

/// Moves an envelope to the isolated lane if it was delivered too often to be processed beside
/// others. Returns none if it was not.
pub(super) async fn isolate(
    context: &Context,
    lane: WorkLane,
    delivery: &Delivery,
    hold: &Hold<'_>,
) -> Option<Result<(), Requeue>> {
    let Delivery { deliveries, payload, .. } = delivery;
    if *deliveries < ISOLATED_FROM {
        return None;
    }
    warn!(
        runbook = "dead-letters-grow",
        lane = lane.name(),
        deliveries,
        "moved to the isolated lane, because it was delivered often and never settled"
    );
    let envelope = payload.clone();
    let isolated = IsolatedEnvelope { lane, deliveries: *deliveries, envelope }.encode();
    let publish = || context.queue.publish(Lane::Isolated, isolated.clone());
    let moved = context.retrier.publish(hold, publish).await;
    context.metrics.isolated(lane);
    context.has_isolated.notify_one();
    Some(moved.map_err(Requeue::from))
}

/// Consumes the isolated lane, whenever there is something in it, until the worker stops.
pub(crate) async fn consume_isolated(
    context: Arc<Context>,
    stopping: CancellationToken,
    handlers: TaskTracker,
    in_work: InWork,
) -> Result<(), QueueError> {
    loop {
        // If the queue does not answer, others log that.
        let depth = stopping.run_until_cancelled(context.queue.depth(Lane::Isolated)).await;
        if depth.is_some_and(|depth| depth.is_ok_and(|ready| ready > 0)) {
            consume_until_idle(&context, &stopping, &handlers, &in_work).await?;
        }
        tokio::select! {
            biased;
            () = stopping.cancelled() => return Ok(()),
            () = context.has_isolated.notified() => {}
            () = tokio::time::sleep(CHECK) => {}
        }
    }
}

async fn consume_until_idle(
    context: &Arc<Context>,
    stopping: &CancellationToken,
    handlers: &TaskTracker,
    in_work: &InWork,
) -> Result<(), QueueError> {
    let consume = || context.queue.consume(Lane::Isolated, 1);
    let Some(mut consumer) = context.retrier.open_consumer(stopping, consume).await? else {
        return Ok(());
    };
    loop {
        let delivery = tokio::select! {
            biased;
            () = stopping.cancelled() => return Ok(()),
            next = timeout(IDLE, consumer.next()) => match next {
                Ok(delivery) => delivery?,
                Err(_) => return Ok(()),
            },
        };
        let span = spans::delivery(Lane::Isolated, delivery.deliveries);
        let guard = in_work.enter(span.clone(), delivery.payload.len(), context.now());
        let handle = {
            let (context, stopping) = (context.clone(), stopping.clone());
            async move {
                handle(&context, delivery, &stopping).await;
                drop(guard);
            }
        };
        let handled = handlers.spawn(handle.instrument(span));
        // Messages are handled one after the other. A handler that panics gives its message back. A
        // handler that is in work when the worker stops is waited for within the drain deadline.
        tokio::select! {
            biased;
            () = stopping.cancelled() => return Ok(()),
            _ = handled => {}
        }
    }
}

/// Processes one envelope alone and settles it.
async fn handle(context: &Context, delivery: Delivery, stopping: &CancellationToken) {
    let times = delivery.deliveries;
    let isolated = IsolatedEnvelope::decode(&delivery.payload);
    let (lane, before, envelope) = match isolated {
        Some(IsolatedEnvelope { lane, deliveries, envelope }) => (lane, deliveries, envelope),
        None => (WorkLane::Jobs, 0, delivery.payload.clone()),
    };
    let delivery = delivery.with(envelope, before.saturating_add(times));
    let is_ours = || delivery.is_ours();
    let hold = context.retrier.hold(&is_ours, stopping);
    let result = if times > MAX_DELIVERIES {
        spans::note_envelope(&delivery.payload);
        let reason = format!("delivered {} times alone and never settled", times - 1);
        put_aside(context, lane, delivery.payload.clone(), &reason, &hold).await
    } else if let Some(parts) = (times >= CUT_FROM).then(|| cut(lane, &delivery)).flatten() {
        publish_all(context, parts, &hold).await
    } else if lane == WorkLane::Jobs {
        let _interactive = context.priority.interactive();
        jobs::process(context, &delivery, &hold).await
    } else {
        tasks::process(context, &delivery, &hold).await
    };
    settle(context, lane, delivery, result).await;
}

/// Makes an isolated envelope for each push of this one. Returns none if it has fewer than two.
fn cut(lane: WorkLane, delivery: &Delivery) -> Option<Vec<IsolatedEnvelope>> {
    if lane != WorkLane::Jobs {
        return None;
    }
    let jobs = decode_job_envelope(&delivery.payload).ok().filter(|jobs| jobs.len() > 1)?;
    let each = jobs.into_iter().map(|job| {
        let envelope = match job {
            Ok(job) => encode_alone(&job).ok()?,
            Err((unreadable, _)) => unreadable,
        };
        Some(IsolatedEnvelope { lane, deliveries: delivery.deliveries, envelope })
    });
    each.collect()
}

async fn publish_all(
    context: &Context,
    parts: Vec<IsolatedEnvelope>,
    hold: &Hold<'_>,
) -> Result<(), Requeue> {
    for part in parts {
        let payload = part.encode();
        let publish = || context.queue.publish(Lane::Isolated, payload.clone());
        context.retrier.publish(hold, publish).await?;
    }
    Ok(())
}
