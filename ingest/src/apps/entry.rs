//! The entry of the cache for one App ID.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use push_model::app::{App, AppKey};
use tokio::{
    sync::{Mutex, MutexGuard, Semaphore},
    time::Instant,
};

use super::{
    activity::Activity,
    carriers::Carriers,
    counts::LastCount,
    device_usage::DeviceUsage,
    message_quotas::{MessageQuotas, MessageUsage, UsageToWrite},
    rate_limit::RateLimits,
    recalls::{AppRecalls, Recalls},
};
use crate::{
    body::{AppMemory, BodyMemory},
    metrics::{AppPushes, Metrics},
    rejection::Rejection,
    settings::AppSettings,
};

/// The reason why the cache cannot say whether there is an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRecord {
    /// The index did not answer, and the cache has no record of the app that may still be used.
    #[error("the index is unavailable and the app is not cached")]
    IndexUnavailable,
    /// The client may not ask the index, and the app is not cached and not known to exist.
    #[error("the app is not cached and the index was not asked")]
    NotAsked,
}

/// The parts that all apps share.
#[derive(Debug)]
pub(super) struct SharedByApps {
    /// The memory for the bodies of all apps.
    pub(super) memory: Arc<BodyMemory>,
    /// The permits for the recalls of all apps.
    pub(super) recalls: Recalls,
    /// The apps whose counts of messages are to be written.
    pub(super) usage_to_write: Arc<UsageToWrite>,
    pub(super) metrics: Arc<Metrics>,
}

/// An app's record, and what its requests use of what it may.
#[derive(Debug)]
pub(crate) struct CachedApp {
    pub(crate) app: App,
    /// None if the app has none.
    pub(crate) limits: Option<Arc<RateLimits>>,
    /// The memory for the bodies of its requests.
    pub(crate) memory: Arc<AppMemory>,
    /// The permits for its recalls.
    pub(crate) recalls: Arc<AppRecalls>,
    /// Held while a page of its messages is read: its requests for pages take turns, so that an app
    /// has one place in the line of all apps.
    pub(crate) lists: Arc<Semaphore>,
    /// Its quotas of messages, if it has any, and what it uses of them.
    pub(crate) messages: Option<(MessageQuotas, Arc<MessageUsage>)>,
    /// The number of its devices, if it has a quota.
    pub(crate) devices: Arc<DeviceUsage>,
    /// The transports that may carry its messages.
    pub(crate) carriers: Arc<Carriers>,
    /// Its last count of an audience, and the turn to make one.
    pub(crate) counts: Arc<LastCount>,
    /// The uses of its secrets.
    pub(crate) activity: Arc<Activity>,
    /// Its pushes, for the metrics.
    pub(crate) pushes: Arc<AppPushes>,
}

impl CachedApp {
    /// A record that was just read. The limits of the entry before stay in use, with what is left
    /// of them, unless the limit has changed or the name belongs to another app now. So do the
    /// app's memory and its permits for recalls, of which requests in work hold a part, and what is
    /// known of its devices, messages and secrets.
    fn new(
        app: App,
        before: &Lookup,
        shared: &SharedByApps,
        now: Instant,
        settings: &AppSettings,
    ) -> Self {
        let (memory, recalls, lists, pushes) = match before {
            Lookup::Found(before) => {
                let CachedApp { memory, recalls, lists, pushes, .. } = &**before;
                (Arc::clone(memory), Arc::clone(recalls), Arc::clone(lists), Arc::clone(pushes))
            }
            Lookup::NoSuchApp | Lookup::Unknown => (
                Arc::new(AppMemory::new(&shared.memory)),
                Arc::new(shared.recalls.of_app()),
                Arc::new(Semaphore::new(1)),
                shared.metrics.app_pushes(&app.app_id),
            ),
        };
        let before = match before {
            Lookup::Found(before) if before.app.generation == app.generation => Some(before),
            Lookup::Found(_) | Lookup::NoSuchApp | Lookup::Unknown => None,
        };
        let devices = before.map(|before| Arc::clone(&before.devices)).unwrap_or_default();
        let carriers = before.map(|before| Arc::clone(&before.carriers)).unwrap_or_default();
        let counts = before.map(|before| Arc::clone(&before.counts)).unwrap_or_default();
        let activity = match before.map(|before| &before.activity) {
            Some(activity) if activity.is_of(&app) => Arc::clone(activity),
            activity => Arc::new(Activity::new(&app, activity.map(|activity| &**activity))),
        };
        let limits = app.rate_limit.map(|limit| match before.and_then(|b| b.limits.as_ref()) {
            Some(limits) if limits.limit() == limit => Arc::clone(limits),
            _ => Arc::new(RateLimits::new(limit, now)),
        });
        let messages = MessageQuotas::of(&app, settings).map(|quotas| {
            let usage = match before.and_then(|before| before.messages.as_ref()) {
                Some((_, usage)) => Arc::clone(usage),
                None => {
                    let to_write = Arc::clone(&shared.usage_to_write);
                    Arc::new(MessageUsage::new(AppKey::from(&app), to_write))
                }
            };
            (quotas, usage)
        });
        Self {
            app,
            limits,
            memory,
            recalls,
            lists,
            messages,
            devices,
            carriers,
            counts,
            activity,
            pushes,
        }
    }

    /// The refusal of a request that uses up no limit of the app, when it may be answered: no faster than
    /// the app may send requests.
    pub(crate) async fn refusal(&self, why: Rejection) -> Rejection {
        if let Some(limits) = &self.limits {
            limits.wait_to_refuse(Instant::now()).await;
        }
        why
    }

    /// Checks that this service takes pushes and changes of devices for the app: not if it went to another
    /// store.
    pub(crate) fn check_in_service(&self) -> Result<(), Rejection> {
        if self.app.moved_to.is_some() { Err(Rejection::AppMoved) } else { Ok(()) }
    }

    /// Checks that this service takes pushes for the app: not if it was disabled either. A refusal comes no
    /// faster than the app may push.
    pub(crate) async fn check_takes_pushes(&self) -> Result<(), Rejection> {
        let refused = match self.check_in_service() {
            Ok(()) if self.app.disabled => Rejection::AppDisabled,
            Ok(()) => return Ok(()),
            Err(moved) => moved,
        };
        Err(self.refusal(refused).await)
    }
}

/// The answer of the index about an App ID.
#[derive(Debug, Clone)]
pub(super) enum Lookup {
    Found(Arc<CachedApp>),
    NoSuchApp,
    /// The index has not answered yet.
    Unknown,
}

#[derive(Debug, Clone)]
pub(super) struct CacheEntry {
    pub(super) lookup: Lookup,
    /// The time of the index's answer.
    read_at: Instant,
    /// The index is not asked again before this time.
    pub(super) next_read: Instant,
}

impl CacheEntry {
    /// Makes the entry of an App ID that the index has not been asked for. `before` must be earlier
    /// than the first lookup, so that the first lookup asks the index.
    fn unread(before: Instant) -> Self {
        Self { lookup: Lookup::Unknown, read_at: before, next_read: before }
    }

    /// The entry after the index answered, with `app` or that there is none.
    pub(super) fn updated(
        &self,
        app: Option<App>,
        shared: &SharedByApps,
        now: Instant,
        settings: &AppSettings,
    ) -> Self {
        let lookup = match app {
            Some(mut app) => {
                app.forget_credentials();
                let app = CachedApp::new(app, &self.lookup, shared, now, settings);
                Lookup::Found(Arc::new(app))
            }
            None => Lookup::NoSuchApp,
        };
        Self { lookup, read_at: now, next_read: now + settings.fresh }
    }

    /// The entry after the index did not answer. A record stays; that there was no app does not,
    /// because the app may have been created since.
    pub(super) fn kept(self, next_read: Instant) -> Self {
        let lookup = match self.lookup {
            Lookup::Found(app) => Lookup::Found(app),
            Lookup::NoSuchApp | Lookup::Unknown => Lookup::Unknown,
        };
        Self { lookup, next_read, ..self }
    }

    /// The app as this entry knows it; its record may be at most `stale` old.
    pub(super) fn app(
        self,
        now: Instant,
        stale: Duration,
    ) -> Result<Option<Arc<CachedApp>>, NoRecord> {
        let age = now.saturating_duration_since(self.read_at);
        match self.lookup {
            Lookup::Found(app) if age <= stale => Ok(Some(app)),
            Lookup::Found(_) | Lookup::Unknown => Err(NoRecord::IndexUnavailable),
            Lookup::NoSuchApp => Ok(None),
        }
    }
}

/// An entry that many requests use and one of them updates.
#[derive(Debug)]
pub(super) struct SharedEntry {
    entry: RwLock<CacheEntry>,
    refresh: Mutex<()>,
}

impl SharedEntry {
    pub(super) fn unread(before: Instant) -> Self {
        Self { entry: RwLock::new(CacheEntry::unread(before)), refresh: Mutex::new(()) }
    }

    pub(super) fn get(&self) -> CacheEntry {
        self.entry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, entry: CacheEntry) {
        *self.entry.write().unwrap_or_else(PoisonError::into_inner) = entry;
    }

    /// The right to ask the index; the other requests wait here for its answer.
    pub(super) async fn refresh(&self) -> MutexGuard<'_, ()> {
        self.refresh.lock().await
    }
}
