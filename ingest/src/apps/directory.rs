//! The App IDs that exist, for addresses that have used up their failed logins: their requests for
//! apps that do not exist must cost the index nothing, and those for apps that do must be served.
//!
//! The list is read only while such addresses ask for apps that are not cached, by one request while the
//! others wait, and so seldom that reading it takes at most a fiftieth of the time. An app that was created
//! since is found with the next reading. A client that goes away ends no reading: a client that asks and goes
//! away repeatedly would otherwise cause constant reading.

use std::{collections::HashSet, sync::Arc, time::Duration};

use push_boot::log_failure;
use push_index::Apps;
use push_model::{causes::with_causes, ids::AppId};
use push_store::IndexError;
use tokio::{sync::Mutex, time::Instant};

use super::entry::NoRecord;
use crate::index_client::IndexOutage;

/// The least time for which a list is used.
pub(super) const MIN_FRESH: Duration = Duration::from_secs(1);
/// The time for which a list is used, as a multiple of the time that reading it took.
const FRESH_FACTOR: u32 = 50;
/// The pause after the index did not answer, as a multiple of the time for which it was waited for.
const PAUSE_FACTOR: u32 = 5;

/// The App IDs that exist.
#[derive(Debug, Default)]
pub(super) struct Directory(Arc<Mutex<Option<List>>>);

#[derive(Debug)]
struct List {
    /// None if the index did not answer.
    ids: Option<HashSet<AppId>>,
    next_read: Instant,
}

impl Directory {
    /// Returns true if there is such an app, as of the last reading.
    ///
    /// # Errors
    /// If the index did not answer when it was last asked.
    pub(super) async fn contains(
        &self,
        id: &AppId,
        index: &Arc<dyn Apps>,
        outage: &IndexOutage,
        timeout: Duration,
    ) -> Result<bool, NoRecord> {
        let list = tokio::time::timeout(timeout, Arc::clone(&self.0).lock_owned()).await;
        let mut list = list.map_err(|_| NoRecord::IndexUnavailable)?;
        let begun = Instant::now();
        if let Some(list) = &*list
            && begun < list.next_read
        {
            let ids = list.ids.as_ref();
            return ids.map(|ids| ids.contains(id)).ok_or(NoRecord::IndexUnavailable);
        }
        let (id, index, outage) = (id.clone(), Arc::clone(index), outage.clone());
        let reading = tokio::spawn(async move {
            let ids = read(&*index, &outage, timeout).await;
            let exists = ids.as_ref().map(|ids| ids.contains(&id));
            let now = Instant::now();
            let factor = if ids.is_some() { FRESH_FACTOR } else { PAUSE_FACTOR };
            let next_read = now + MIN_FRESH.max((now - begun) * factor);
            *list = Some(List { ids, next_read });
            exists
        });
        reading.await.ok().flatten().ok_or(NoRecord::IndexUnavailable)
    }
}

/// Reads the App IDs that exist. Returns `None` if the index does not answer, which is logged.
async fn read(index: &dyn Apps, outage: &IndexOutage, timeout: Duration) -> Option<HashSet<AppId>> {
    match outage.ask(timeout, index.apps()).await {
        Ok(apps) => return Some(apps.into_iter().map(|app| app.app_id).collect()),
        Err(IndexError::Corrupt(what)) => {
            tracing::error!(
                runbook = "stored-records-cannot-be-read",
                what,
                "an app's record is unreadable, so the apps cannot be listed"
            );
        }
        Err(error) => {
            let (is_news, error) = (outage.failed(&error), with_causes(&error));
            log_failure!(
                is_news,
                runbook = "a-store-is-unreachable-or-refuses-writes",
                error,
                "the index did not list the apps"
            );
        }
    }
    None
}
