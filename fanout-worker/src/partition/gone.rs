//! Removes devices that their providers reported as gone, unless this would remove so many of the app's
//! devices that something else must be wrong ([`push_model::gone`]).

use push_model::{
    app::AppKey,
    gone::{GoneDecision, GoneReports},
    registration::GoneDevice,
};
use tracing::warn;

use crate::{
    context::Context,
    control::{hold::Hold, retrier::RetryError},
};

/// Counts these devices, and removes or keeps all of them. Devices that are kept, or have registered again,
/// are counted as failed by each message until they are removed.
pub(super) async fn remove(
    context: &Context,
    app: &AppKey,
    gone: &[GoneDevice],
    hold: &Hold<'_>,
) -> Result<(), RetryError> {
    let Context { index, retrier, gone_limit: limit, metrics, .. } = context;
    let devices = u64::try_from(gone.len()).unwrap_or(u64::MAX);
    let now = context.now();
    let count = || index.count_gone(app, devices, limit.window, now);
    let reports = retrier.ask_store(hold, count).await?.value;
    let of = if limit.depends_on_devices(&reports, now) {
        retrier.ask_store(hold, || index.count_devices(app)).await?.value
    } else {
        0
    };
    match limit.decide(&reports, of, now) {
        GoneDecision::Remove => {
            let removal = || index.remove_devices(app, gone, context.now());
            let removed = retrier.ask_store(hold, removal).await?.value;
            let removed = removed.into_iter().filter(|removed| *removed).count();
            metrics.gone_removed(app, u64::try_from(removed).unwrap_or(u64::MAX));
        }
        GoneDecision::Keep(until) => metrics.gone_kept(app, devices, until),
        GoneDecision::Stop(until) => {
            let stop = || index.stop_removals(app, reports.stopped_until, until);
            if retrier.ask_store(hold, stop).await?.value {
                let GoneReports { reported, .. } = reports;
                warn!(
                    runbook = "removals-of-gone-devices-have-stopped",
                    %app,
                    reported,
                    devices = of,
                    minutes = limit.window.as_secs() / 60,
                    until = %until,
                    "too many devices of an app were reported as gone in too short a time, so none of them \
                     are removed for a while: check the app's accounts at its providers"
                );
            }
            metrics.gone_kept(app, devices, until);
        }
    }
    Ok(())
}
