//! Devices that were removed because their providers reported them as gone.

use std::time::Duration;

use push_index::{AppKey, Index, RemovedPage};
use push_model::{
    app::App,
    cursor::{self, ListKind},
    gone::RemovedDevice,
    ids::{AppId, ClientId},
    ledger::FailReason,
    time::UnixMillis,
};
use serde::Serialize;

use super::{find, find_app};
use crate::{page, refusal::Refusal};

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

/// A page of the devices of an app that were removed as gone.
#[derive(Debug, Clone, Serialize)]
pub struct GonePage {
    /// The devices, newest first.
    pub devices: Vec<GoneView>,
    /// Until when no further ones are removed, because too many were reported.
    pub removals_stopped_until: Option<UnixMillis>,
    /// The cursor of the next page; absent at the end of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The place of a page: where it begins in the list, and when the device before it was removed. Devices that
/// were removed later were listed before.
#[derive(Debug, Clone, Copy)]
struct Place {
    from: usize,
    not_after: UnixMillis,
}

impl Place {
    fn cursor(self, app: &App) -> String {
        let place = [(self.from as u64).to_be_bytes(), self.not_after.0.to_be_bytes()].concat();
        cursor::seal(ListKind::GoneDevices, &AppKey::from(app), &app.id_key, &place)
    }

    fn of_cursor(app: &App, cursor: &str) -> Result<Self, Refusal> {
        let place = cursor::open(ListKind::GoneDevices, &AppKey::from(app), &app.id_key, cursor);
        let read = |place: Vec<u8>| {
            let (from, not_after) = place.split_first_chunk()?;
            let from = usize::try_from(u64::from_be_bytes(*from)).ok()?;
            let not_after = UnixMillis(u64::from_be_bytes(not_after.try_into().ok()?));
            Some(Self { from, not_after })
        };
        place.and_then(read).ok_or_else(page::unreadable)
    }
}

/// Lists the devices of an app that were removed as gone, page by page.
///
/// # Errors
/// If there is no such app, the cursor is not one of this list, or the index did not answer.
pub async fn gone_page(
    index: &dyn Index,
    app_id: &AppId,
    limit: usize,
    cursor: Option<&str>,
) -> anyhow::Result<GonePage> {
    let app = find(index, app_id.into()).await?;
    let (key, first) = (AppKey::from(&app), Place { from: 0, not_after: UnixMillis::MAX });
    let Place { from, mut not_after } =
        cursor.map(|cursor| Place::of_cursor(&app, cursor)).transpose()?.unwrap_or(first);
    let RemovedPage { mut devices, next } =
        index.removed_devices(&key, UnixMillis(0), from, limit).await?;
    devices.retain(|device| device.removed_at <= not_after);
    not_after = devices.last().map_or(not_after, |last| last.removed_at);
    let removals_stopped_until = removals_stopped(index, &key, UnixMillis::now()).await?;
    let next_cursor = next.map(|from| Place { from, not_after }.cursor(&app));
    let devices = devices.into_iter().map(GoneView::from).collect();
    Ok(GonePage { devices, removals_stopped_until, next_cursor })
}

/// Returns until when removals of an app's gone devices are stopped, if they are.
pub(crate) async fn removals_stopped(
    index: &dyn Index,
    app: &AppKey,
    now: UnixMillis,
) -> anyhow::Result<Option<UnixMillis>> {
    Ok(index.removals_stopped_until(app).await?.filter(|until| *until > now))
}
