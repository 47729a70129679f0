//! The app records of this process.
//!
//! - A record is used for a few seconds. Then one request reads it again, while the others wait
//!   for the answer. So an app that is disabled is refused after a few seconds at most.
//! - While the index is unavailable, the last record of an app is used for longer, up to a bound.
//!   The index is then asked only every [`RETRY_PAUSE`], so that requests do not queue up behind
//!   its timeouts.
//! - A client that goes away ends no read, which the next request would otherwise have to repeat,
//!   as often as a client likes.
//! - That an app does not exist is cached as well, for as long as a record, in a negative cache of
//!   its own: requests with invented App IDs evict no app's record.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use push_boot::log_failure;
use push_index::Apps;
use push_model::{app::App, causes::with_causes, ids::AppId};
use push_store::IndexError;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::{
    directory::Directory,
    entry::{CachedApp, Lookup, NoRecord, SharedByApps, SharedEntry},
    message_quotas::UsageToWrite,
    recalls::Recalls,
};
use crate::{body::BodyMemory, index_client::IndexOutage, metrics::Metrics, settings::AppSettings};

/// The most App IDs in the negative cache.
const NEGATIVE_ENTRIES: usize = 10_000;
/// The pause in which the index is not asked after it did not answer.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The app records of this process.
pub(super) struct AppCache {
    index: Arc<dyn Apps>,
    outage: IndexOutage,
    settings: AppSettings,
    apps: Cache<AppId, Arc<SharedEntry>>,
    /// App IDs without an app, and those that the index has not answered for yet.
    negative: Cache<AppId, Arc<SharedEntry>>,
    directory: Directory,
    /// The time at which this cache was made.
    created: Instant,
    shared: SharedByApps,
}

impl AppCache {
    pub(super) fn new(
        index: Arc<dyn Apps>,
        outage: IndexOutage,
        settings: AppSettings,
        memory: Arc<BodyMemory>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let apps = Cache::new(settings.max_apps);
        let negative = Cache::new(NEGATIVE_ENTRIES);
        let recalls = Recalls::new(&settings);
        let shared = SharedByApps { memory, recalls, usage_to_write: Arc::default(), metrics };
        Self {
            index,
            outage,
            apps,
            negative,
            directory: Directory::default(),
            created: Instant::now(),
            shared,
            settings,
        }
    }

    /// The app, if there is one. If no record of it was read before, the index is asked only if
    /// `may_ask` says so or the app is listed in the directory.
    ///
    /// The future of the read is in a task of its own: a read is rare, and its three kilobytes would
    /// be part of every connection.
    pub(super) async fn get(
        self: &Arc<Self>,
        id: &AppId,
        now: Instant,
        may_ask: impl FnOnce() -> bool,
    ) -> Result<Option<Arc<CachedApp>>, NoRecord> {
        let cached = self.apps.get(id);
        let was_read = cached.is_some();
        let shared = cached.unwrap_or_else(|| self.negative_entry(id));
        let entry = shared.get();
        if now < entry.next_read {
            return entry.app(now, self.settings.stale);
        }
        if !was_read && !may_ask() && !Box::pin(self.is_listed(id)).await? {
            return Err(NoRecord::NotAsked);
        }
        let (cache, app) = (Arc::clone(self), id.clone());
        let read = tokio::spawn(async move { cache.refresh(&app, shared).await });
        read.await.unwrap_or_else(|error| {
            tracing::error!(
                runbook = "a-store-is-unreachable-or-refuses-writes",
                app = %id,
                %error,
                "reading an app's record failed"
            );
            Err(NoRecord::IndexUnavailable)
        })
    }

    /// Returns true if the directory has the app.
    async fn is_listed(&self, id: &AppId) -> Result<bool, NoRecord> {
        let timeout = self.settings.index_timeout;
        self.directory.contains(id, &self.index, &self.outage, timeout).await
    }

    pub(super) fn found(&self) -> impl Iterator<Item = Arc<CachedApp>> {
        self.apps.iter().filter_map(|(_, shared)| match shared.get().lookup {
            Lookup::Found(app) => Some(app),
            Lookup::NoSuchApp | Lookup::Unknown => None,
        })
    }

    /// Returns how many apps' records are cached.
    pub(super) fn len(&self) -> usize {
        self.apps.len()
    }

    /// The apps whose counts of messages are to be written.
    pub(super) fn usage_to_write(&self) -> &UsageToWrite {
        &self.shared.usage_to_write
    }

    /// Drops an app's record, so that the next request reads it again.
    pub(super) fn invalidate(&self, id: &AppId) {
        self.apps.remove(id);
    }

    fn negative_entry(&self, id: &AppId) -> Arc<SharedEntry> {
        let unread = || Ok::<_, Infallible>(Arc::new(SharedEntry::unread(self.created)));
        let Ok(shared) = self.negative.get_or_insert_with(id, unread);
        shared
    }

    /// Asks the index for an app, unless another request did so while this one waited.
    async fn refresh(
        &self,
        id: &AppId,
        shared: Arc<SharedEntry>,
    ) -> Result<Option<Arc<CachedApp>>, NoRecord> {
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
            Ok(app) => before.updated(app, &self.shared, now, &self.settings),
            Err(_) => before.kept(now + RETRY_PAUSE),
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

    async fn read(&self, id: &AppId) -> Result<Option<App>, NoRecord> {
        let answer = self.outage.ask(self.settings.index_timeout, self.index.app(id)).await;
        let reads = &self.shared.metrics.app_reads;
        let error = match answer {
            Ok(app) => {
                let counter = if app.is_some() { &reads.found } else { &reads.absent };
                counter.inc();
                return Ok(app);
            }
            Err(error) => error,
        };
        reads.failed.inc();
        if let IndexError::Corrupt(what) = error {
            tracing::error!(
                runbook = "stored-records-cannot-be-read",
                app = %id,
                what,
                "an app's record is unreadable"
            );
        } else {
            let (is_news, error) = (self.outage.failed(&error), with_causes(&error));
            log_failure!(
                is_news,
                runbook = "a-store-is-unreachable-or-refuses-writes",
                app = %id,
                error,
                "the index did not answer for an app"
            );
        }
        Err(NoRecord::IndexUnavailable)
    }
}

impl fmt::Debug for AppCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppCache").field("settings", &self.settings).finish_non_exhaustive()
    }
}
