//! Devices of an app. A viewer does not see their addresses at providers.

use std::sync::Arc;

use axum::extract::State;
use push_model::{
    admin_key::Role,
    device::{DeviceDraft, ProfileDraft},
    ids::{AppId, ClientId},
};
use push_operator::device::{
    self, DeviceCounts, DevicePage, DeviceRemoved, DeviceStored, DeviceView, GonePage,
};
use serde::Serialize;

use super::{
    answer::{Answer, Result},
    input::{Asked, JsonText, Named, PageParams, parse},
};
use crate::{access::Caller, core::Core};

/// A device that was registered or replaced.
#[derive(Debug, Serialize)]
pub(super) struct Stored {
    #[serde(flatten)]
    stored: DeviceStored,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

pub(super) fn shown_to(caller: &Caller, device: DeviceView) -> DeviceView {
    if caller.role() < Role::Operator { device.without_token() } else { device }
}

pub(super) async fn list(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named(app_id): Named<AppId>,
    Asked(page): Asked<PageParams>,
) -> Result<DevicePage> {
    let mut found = device::list(core.index(), &app_id, page.limit()?, page.cursor()).await?;
    found.devices = found.devices.into_iter().map(|device| shown_to(&caller, device)).collect();
    Ok(Answer(found))
}

pub(super) async fn counts(
    State(core): State<Arc<Core>>,
    Named(app_id): Named<AppId>,
) -> Result<DeviceCounts> {
    let app = device::find_app(core.index(), &app_id).await?;
    Ok(Answer(core.device_counts(&app).await?))
}

pub(super) async fn show(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, client_id)): Named<(AppId, ClientId)>,
) -> Result<DeviceView> {
    let device = device::show(core.index(), &app_id, &client_id).await?;
    Ok(Answer(shown_to(&caller, device)))
}

pub(super) async fn put(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, client_id)): Named<(AppId, ClientId)>,
    JsonText(text): JsonText,
) -> Result<Stored> {
    let draft: DeviceDraft<'_> = parse(&text)?;
    let (actor, app) = (caller.actor()?, caller.target(&app_id));
    let mut stored = device::put_recorded(core.index(), &actor, app, client_id, draft).await?;
    let warnings = std::mem::take(&mut stored.warnings);
    Ok(Answer(Stored { stored, warnings }))
}

pub(super) async fn patch(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, client_id)): Named<(AppId, ClientId)>,
    JsonText(text): JsonText,
) -> Result<Stored> {
    let draft: ProfileDraft<'_> = parse(&text)?;
    let (actor, app) = (caller.actor()?, caller.target(&app_id));
    let mut stored = device::patch_recorded(core.index(), &actor, app, client_id, &draft).await?;
    let warnings = std::mem::take(&mut stored.warnings);
    Ok(Answer(Stored { stored, warnings }))
}

pub(super) async fn remove(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, client_id)): Named<(AppId, ClientId)>,
) -> Result<DeviceRemoved> {
    let (actor, app) = (caller.actor()?, caller.target(&app_id));
    Ok(Answer(device::remove_recorded(core.index(), &actor, app, client_id).await?))
}

pub(super) async fn gone(
    State(core): State<Arc<Core>>,
    Named(app_id): Named<AppId>,
    Asked(page): Asked<PageParams>,
) -> Result<GonePage> {
    Ok(Answer(device::gone_page(core.index(), &app_id, page.limit()?, page.cursor()).await?))
}
