//! Reads the list of open broadcasts now and then, for metrics.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc, time::Duration};

use push_index::IndexError;
use push_model::{app::AppKey, open_broadcast::OpenBroadcast};
use push_queue::Lane;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::estimate::{Estimate, Speed, estimate};
use crate::{context::Context, control::rate::Rate, dependencies::Observation};

/// For how long after its end a broadcast stays in the list whose entry does not close. It counts as
/// overdue meanwhile, so that the operator learns of it.
const KEPT_OVERDUE: Duration = Duration::from_hours(24);

/// Reads the list at once and then every interval, until the worker stops.
pub(crate) async fn keep_reading(
    context: Arc<Context>,
    observation: Observation,
    stopping: CancellationToken,
) {
    let reading = async {
        let mut rate = Rate::default();
        loop {
            rate.measured(context.rate.take());
            let workers = observation.stores.consumers(Lane::Tasks).unwrap_or(1);
            let read = read(&context, Speed { rate: rate.value(), workers }).await;
            if let Err(error) = &read {
                let error = error as &dyn std::error::Error;
                debug!(error, "what is left of broadcasts was not read");
            }
            context.metrics.broadcasts(read.ok());
            tokio::time::sleep(observation.interval).await;
        }
    };
    stopping.run_until_cancelled(reading).await;
}

async fn read(context: &Context, speed: Speed) -> Result<Estimate, IndexError> {
    let mut listed = context.ledger.open_broadcasts().await?;
    // An entry is closed by the first check after what is left of it may be written off.
    let rest = context.closing.write_off_after + context.closing.every;
    let is_kept = |one: &OpenBroadcast| context.now() <= one.ends_at.plus(rest).plus(KEPT_OVERDUE);
    for forgotten in listed.extract_if(.., |one| !is_kept(one)) {
        context.ledger.unlist_broadcast(&forgotten.message_id).await?;
    }
    let mut paces: BTreeMap<AppKey, NonZeroU32> = BTreeMap::new();
    for app in listed.iter().map(|one| &one.app) {
        if !paces.contains_key(app)
            && let Some(pace) = context.paces.ask(app, &*context.index).await?
        {
            paces.insert(app.clone(), pace);
        }
    }
    Ok(estimate(&listed, &paces, speed, context.now(), rest))
}
