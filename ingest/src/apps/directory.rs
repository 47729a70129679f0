//! The App IDs that exist, for addresses that have used up their failed logins: their requests for
//! apps that do not exist must cost the index nothing, and those for apps that do must be served.
//!
//! The list is read only while such addresses ask for apps that are not cached, by one request
//! while the others wait, and so seldom that reading it takes at most a fiftieth of the time. An app
//! that was created since is found with the next reading.

use std::{collections::HashSet, sync::Arc, time::Duration};

use push_index::{Apps, IndexError};
use push_model::ids::AppId;
use tokio::{sync::Mutex, time::Instant};

/// How long a list is used at least.
pub(super) const MIN_FRESH: Duration = Duration::from_secs(1);
/// How many times as long as reading it took a list is used.
const FRESH_FACTOR: u32 = 50;

/// The App IDs that exist.
#[derive(Debug, Default)]
pub(super) struct Directory(Mutex<Option<List>>);

#[derive(Debug)]
struct List {
    ids: HashSet<AppId>,
    next_read: Instant,
}

impl Directory {
    /// Whether there is such an app, as of the last reading.
    ///
    /// # Errors
    /// If the index had to be asked and did not answer.
    pub(super) async fn contains(
        &self,
        id: &AppId,
        index: &Arc<dyn Apps>,
        timeout: Duration,
    ) -> Result<bool, IndexError> {
        let mut list = self.0.lock().await;
        let begun = Instant::now();
        if let Some(list) = &*list
            && begun < list.next_read
        {
            return Ok(list.ids.contains(id));
        }
        let apps = tokio::time::timeout(timeout, index.apps()).await;
        let apps = apps.map_err(|_| IndexError::Unreachable("no answer in time".into()))??;
        let ids: HashSet<AppId> = apps.into_iter().map(|app| app.app_id).collect();
        let exists = ids.contains(id);
        let now = Instant::now();
        let next_read = now + MIN_FRESH.max((now - begun) * FRESH_FACTOR);
        *list = Some(List { ids, next_read });
        Ok(exists)
    }
}
