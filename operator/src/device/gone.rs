//! Devices that were removed because their providers reported them as gone.

use std::time::Duration;

use push_index::{AppKey, Index, RemovedPage};
use push_model::{
    gone::RemovedDevice,
    ids::{AppId, ClientId},
    ledger::FailReason,
    time::UnixMillis,
};
use serde::Serialize;

use super::find_app;

/// Devices of one request to the index.
const REQUEST_DEVICES: usize = 1000;

/// The devices of an app that were removed as gone.
#[derive(Debug, Clone)]
pub struct Gone {
    /// The devices, newest first.
    pub devices: Vec<GoneView>,
    /// Until when no further ones are removed, because too many were reported.
    pub removals_stopped_until: Option<UnixMillis>,
}

/// A device that was removed as gone.
#[derive(Debug, Clone, Serialize)]
pub struct GoneView {
    /// The device.
    pub client_id: ClientId,
    /// The transport whose provider reported it.
    pub transport: &'static str,
    /// Why it was removed, as the ledger names it.
    pub reason: &'static str,
    /// The provider's code.
    pub code: Box<str>,
    /// When it was removed.
    pub removed_at: UnixMillis,
}

impl From<RemovedDevice> for GoneView {
    fn from(RemovedDevice { removed_at, transport, code, client_id }: RemovedDevice) -> Self {
        let reason = FailReason::Gone.name();
        Self { client_id, transport: transport.name(), reason, code, removed_at }
    }
}

/// Lists the devices of an app that were removed as gone within this time.
///
/// # Errors
/// If there is no such app, or the index did not answer.
pub async fn gone(index: &dyn Index, app_id: &AppId, within: Duration) -> anyhow::Result<Gone> {
    let app = find_app(index, app_id).await?;
    let now = UnixMillis::now();
    let (since, mut next) = (now.minus(within), Some(0));
    let mut devices = Vec::new();
    while let Some(from) = next {
        let page = index.removed_devices(&app, since, from, REQUEST_DEVICES).await?;
        let RemovedPage { devices: more, next: after } = page;
        devices.extend(more.into_iter().map(GoneView::from));
        next = after;
    }
    let removals_stopped_until = removals_stopped(index, &app, now).await?;
    Ok(Gone { devices, removals_stopped_until })
}

/// Returns until when removals of an app's gone devices are stopped, if they are.
pub(crate) async fn removals_stopped(
    index: &dyn Index,
    app: &AppKey,
    now: UnixMillis,
) -> anyhow::Result<Option<UnixMillis>> {
    Ok(index.removals_stopped_until(app).await?.filter(|until| *until > now))
}
