//! What the cache keeps for one App ID.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use push_model::app::App;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use super::rate_limit::RateLimiter;

/// The index did not answer, and the cache has no record of the app that may still be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index is unavailable and the app is not cached")]
pub(crate) struct IndexUnavailable;

/// An app's record and its rate limiter.
#[derive(Debug)]
pub(crate) struct CachedApp {
    pub(crate) app: App,
    /// None if the app has no limit.
    pub(crate) limiter: Option<Arc<RateLimiter>>,
}

impl CachedApp {
    /// A record that was just read. The limiter of the entry before stays in use, with what is
    /// left of its quota, unless the limit has changed or the name belongs to another app now.
    fn new(app: App, before: &Lookup, now: Instant) -> Self {
        let before = match before {
            Lookup::Found(before) if before.app.generation == app.generation => {
                before.limiter.as_ref()
            }
            Lookup::Found(_) | Lookup::NoSuchApp | Lookup::Unknown => None,
        };
        let limiter = app.rate_limit.map(|limit| match before {
            Some(limiter) if limiter.limit() == limit => Arc::clone(limiter),
            _ => Arc::new(RateLimiter::new(limit, now)),
        });
        Self { app, limiter }
    }
}

/// What the index said of an App ID.
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
    /// When the index answered.
    read_at: Instant,
    /// The index is not asked again before this time.
    pub(super) next_read: Instant,
}

impl CacheEntry {
    /// The entry of an App ID that the index has not been asked for.
    fn unread() -> Self {
        let now = Instant::now();
        Self { lookup: Lookup::Unknown, read_at: now, next_read: now }
    }

    /// The entry after the index answered, with `app` or that there is none.
    pub(super) fn updated(&self, app: Option<App>, now: Instant, fresh: Duration) -> Self {
        let lookup = match app {
            Some(app) => Lookup::Found(Arc::new(CachedApp::new(app, &self.lookup, now))),
            None => Lookup::NoSuchApp,
        };
        Self { lookup, read_at: now, next_read: now + fresh }
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
    ) -> Result<Option<Arc<CachedApp>>, IndexUnavailable> {
        let age = now.saturating_duration_since(self.read_at);
        match self.lookup {
            Lookup::Found(app) if age <= stale => Ok(Some(app)),
            Lookup::Found(_) | Lookup::Unknown => Err(IndexUnavailable),
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
    pub(super) fn unread() -> Self {
        Self { entry: RwLock::new(CacheEntry::unread()), refresh: Mutex::new(()) }
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
