//! The app records of this process.
//!
//! - A record is used for a few seconds. Then one request reads it again, while the others wait
//!   for the answer. So an app that is disabled is refused after a few seconds at most.
//! - While the index is unavailable, the last record of an app is used for longer, up to a bound.
//!   The index is then asked only every [`RETRY_PAUSE`], so that requests do not queue up behind
//!   its timeouts.
//! - That an app does not exist is cached as well, for as long as a record, in a negative cache of
//!   its own: requests with invented App IDs evict no app's record.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use push_index::{Apps, IndexError};
use push_model::{app::App, ids::AppId};
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::entry::{CachedApp, IndexUnavailable, Lookup, SharedEntry};
use crate::settings::AppSettings;

/// How many App IDs the negative cache holds.
const NEGATIVE_ENTRIES: usize = 10_000;
/// How long the index is not asked after it did not answer.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The app records of this process.
pub(crate) struct AppCache {
    index: Arc<dyn Apps>,
    settings: AppSettings,
    apps: Cache<AppId, Arc<SharedEntry>>,
    /// App IDs without an app, and those that the index has not answered for yet.
    negative: Cache<AppId, Arc<SharedEntry>>,
}

impl AppCache {
    pub(crate) fn new(index: Arc<dyn Apps>, settings: AppSettings) -> Self {
        let apps = Cache::new(settings.max_apps);
        Self { index, apps, negative: Cache::new(NEGATIVE_ENTRIES), settings }
    }

    /// The app, if there is one. The future of the read is boxed: a read is rare, and its three
    /// kilobytes would be part of every connection.
    pub(crate) async fn get(&self, id: &AppId) -> Result<Option<Arc<CachedApp>>, IndexUnavailable> {
        let shared = self.apps.get(id).unwrap_or_else(|| self.negative_entry(id));
        let (entry, now) = (shared.get(), Instant::now());
        if now < entry.next_read {
            return entry.app(now, self.settings.stale);
        }
        Box::pin(self.refresh(id, shared)).await
    }

    /// Drops an app's record, so that the next request reads it again.
    pub(crate) fn invalidate(&self, id: &AppId) {
        self.apps.remove(id);
    }

    fn negative_entry(&self, id: &AppId) -> Arc<SharedEntry> {
        let unread = || Ok::<_, Infallible>(Arc::new(SharedEntry::unread()));
        let Ok(shared) = self.negative.get_or_insert_with(id, unread);
        shared
    }

    /// Asks the index for an app, unless another request did so while this one waited.
    async fn refresh(
        &self,
        id: &AppId,
        shared: Arc<SharedEntry>,
    ) -> Result<Option<Arc<CachedApp>>, IndexUnavailable> {
        let _refresh = shared.refresh().await;
        // The request before may have found an app, whose entry is then no longer `shared`.
        let before = self.apps.get(id).as_ref().unwrap_or(&shared).get();
        let (now, stale) = (Instant::now(), self.settings.stale);
        if now < before.next_read {
            return before.app(now, stale);
        }
        let answer = self.read(id).await;
        let now = Instant::now();
        let entry = match answer {
            Ok(app) => before.updated(app, now, self.settings.fresh),
            Err(IndexUnavailable) => before.kept(now + RETRY_PAUSE),
        };
        shared.set(entry.clone());
        let (from, to) = match entry.lookup {
            Lookup::Found(_) => (&self.negative, &self.apps),
            Lookup::NoSuchApp | Lookup::Unknown => (&self.apps, &self.negative),
        };
        to.insert(id.clone(), Arc::clone(&shared));
        from.remove(id);
        entry.app(now, stale)
    }

    async fn read(&self, id: &AppId) -> Result<Option<App>, IndexUnavailable> {
        let answer = tokio::time::timeout(self.settings.index_timeout, self.index.app(id)).await;
        let error: &(dyn std::error::Error + 'static) = match &answer {
            Ok(Ok(app)) => return Ok(app.clone()),
            Ok(Err(error)) => error,
            Err(elapsed) => elapsed,
        };
        if let Some(IndexError::Corrupt(what)) = error.downcast_ref() {
            tracing::error!(app = %id, what, "an app's record is unreadable");
        } else {
            tracing::warn!(app = %id, error, "the index did not answer for an app");
        }
        Err(IndexUnavailable)
    }
}

impl fmt::Debug for AppCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppCache").field("settings", &self.settings).finish_non_exhaustive()
    }
}
