//! The devices of an app, page by page, in the order of their slots.

use anyhow::bail;
use push_index::Index;
use push_model::{
    app::{App, AppKey},
    cursor::{self, ListKind},
    device::Device,
    ids::AppId,
    slots::SlotRange,
};
use push_providers::by_kind::shown_device;
use serde::Serialize;

use super::find;
use crate::refusal::Refusal;

/// The most requests of a page, so that an app with many free slots does not prolong it.
const MOST_REQUESTS: usize = 64;

/// A page of an app's devices.
#[derive(Debug, Clone, Serialize)]
pub struct DevicePage {
    /// The devices.
    pub devices: Vec<Device>,
    /// The number of devices that were left out because their records cannot be read.
    #[serde(skip)]
    pub unreadable: u64,
    /// The cursor of the next page; absent at the end of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The slot at which a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    shard: u32,
    slot: u32,
}

impl Place {
    fn cursor(self, app: &App) -> String {
        let place = [self.shard.to_be_bytes(), self.slot.to_be_bytes()].concat();
        cursor::seal(ListKind::Devices, &AppKey::from(app), &app.id_key, &place)
    }

    fn of_cursor(app: &App, cursor: &str) -> Option<Self> {
        let place = cursor::open(ListKind::Devices, &AppKey::from(app), &app.id_key, cursor)?;
        let (shard, slot) = place.split_first_chunk()?;
        let (shard, slot) = (u32::from_be_bytes(*shard), u32::from_be_bytes(slot.try_into().ok()?));
        Some(Self { shard, slot })
    }
}

/// Lists the devices of an app: at most `limit`, behind the page that ended with this cursor. There may be
/// fewer although the list goes on. A device that registers meanwhile may be missing, because it can take a
/// slot that was passed.
///
/// # Errors
/// If there is no such app, the cursor is not one of its devices, or the index did not answer.
pub async fn list(
    index: &dyn Index,
    app_id: &AppId,
    limit: usize,
    cursor: Option<&str>,
) -> anyhow::Result<DevicePage> {
    if limit == 0 {
        bail!(Refusal::Invalid("the limit must be at least 1".to_owned()));
    }
    let app = find(index, app_id.into()).await?;
    let key = AppKey::from(&app);
    let place = |cursor| {
        let place = Place::of_cursor(&app, cursor);
        let wrong = || format!("the cursor is not one of the devices of {app_id}");
        place.ok_or_else(|| Refusal::Invalid(wrong()))
    };
    let first = cursor.map(place).transpose()?.unwrap_or(Place { shard: 0, slot: 0 });
    let mut ranges = index.extent(&key).await?;
    ranges.sort_unstable_by_key(|range| range.shard);
    let mut page = DevicePage { devices: Vec::new(), unreadable: 0, next_cursor: None };
    let mut requests = 0;
    for SlotRange { shard, from, to } in ranges {
        let from = if shard == first.shard { from.max(first.slot) } else { from };
        let mut next = Some(from).filter(|from| shard >= first.shard && *from < to);
        while let Some(from) = next {
            let missing = limit.saturating_sub(page.devices.len());
            if missing == 0 || requests == MOST_REQUESTS {
                page.next_cursor = Some(Place { shard, slot: from }.cursor(&app));
                return Ok(page);
            }
            requests += 1;
            let range = SlotRange { shard, from, to };
            let scanned = index.list_devices(&key, range, missing).await?;
            page.devices.extend(scanned.items.into_iter().map(shown_device));
            page.unreadable += scanned.unreadable;
            next = scanned.next.filter(|next| *next < to);
        }
    }
    Ok(page)
}
