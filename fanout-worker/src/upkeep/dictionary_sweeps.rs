//! Sweeps the dictionaries of apps: values that no device has are freed.
//!
//! One worker at a time does a round every [`EVERY`]. It looks at how full the dictionaries of all
//! apps are, for the metrics and the alert, and takes a step of a sweep where one is due
//! ([`DictionaryUse::is_sweep_due`]).

use std::{sync::Arc, time::Duration};

use push_boot::{log_end_of_outage, log_failure, outage::Outage};
use push_index::{DictionaryUse, SweepStep};
use push_model::{app::AppKey, causes::with_causes};
use push_store::IndexError;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::context::Context;

/// Interval between rounds. A sweep takes two steps, some minutes apart.
const EVERY: Duration = Duration::from_secs(20);

/// Number of rounds after which an app whose dictionaries are nearly full is logged again: an hour.
const WARNED_EVERY: u32 = 180;

/// Sweeps until the worker stops.
pub(crate) async fn keep_sweeping(context: Arc<Context>, stopping: CancellationToken) {
    let outage = Outage::default();
    let mut rounds = 0;
    while stopping.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        let is_warning = rounds % WARNED_EVERY == 0;
        let Some(done) = stopping.run_until_cancelled(round(&context, is_warning)).await else {
            return;
        };
        match done {
            // Rounds that find nothing do not count, so that the first full app is logged immediately.
            Ok(nearly_full) if nearly_full > 0 => rounds += 1,
            Ok(_) => rounds = 0,
            Err(error) => {
                let (is_first, error) = (outage.failed(1, error.kind()), with_causes(&error));
                log_failure!(
                    is_first,
                    runbook = "attribute-values-run-out",
                    error,
                    "the dictionaries were not swept"
                );
                continue;
            }
        }
        if let Some(ended) = outage.answered() {
            log_end_of_outage!(ended, for_ms = ended.for_ms(), "the dictionaries are swept again");
        }
    }
}

/// One round. Returns how many apps have dictionaries that are nearly full; 0 if another worker
/// looks after them.
async fn round(context: &Context, is_warning: bool) -> Result<u64, IndexError> {
    if !context.index.acquire_sweeping().await? {
        context.metrics.dictionaries_nearly_full(0);
        return Ok(0);
    }
    let filled = context.index.filled_dictionaries().await?;
    let nearly_full: Vec<&(AppKey, DictionaryUse)> =
        filled.iter().filter(|(_, used)| used.is_nearly_full()).collect();
    let count = u64::try_from(nearly_full.len()).unwrap_or(u64::MAX);
    context.metrics.dictionaries_nearly_full(count);
    if is_warning && let Some((app, used)) = nearly_full.first() {
        let (column, filled) = used.fullest();
        let record = context.index.app(&app.id).await.ok().flatten();
        let declared = record.map(|record| record.attributes).unwrap_or_default();
        warn!(
            runbook = "attribute-values-run-out",
            %app,
            attribute = column.name(&declared),
            percent = filled / 10,
            apps = count,
            "the dictionaries of an app are nearly full: attributes with new values are then stored as \
             absent"
        );
    }
    for (app, _) in filled.iter().filter(|(_, used)| used.is_sweep_due()) {
        // Renewed for each app, because a sweep of a large one takes a while.
        if !context.index.acquire_sweeping().await? {
            break;
        }
        match context.index.sweep(app, SweepStep::InTime).await {
            Ok(swept) => context.metrics.dictionary_values_freed(swept.freed),
            // One app that cannot be read or changed must not keep the others from being swept.
            Err(error @ (IndexError::Corrupt(_) | IndexError::Refused(_))) => {
                let error = &error as &dyn std::error::Error;
                warn!(
                    runbook = "attribute-values-run-out",
                    %app,
                    error,
                    "dictionaries were not swept"
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
