//! App records, kept for a moment so that a push costs no round trip to the index.
//!
//! - A record is used for a few seconds, then asked for again, by one request while the others
//!   wait for its answer. So a disabled app is refused a few seconds later at most.
//! - While the index is away, known apps go on with their last record for a longer, bounded
//!   time. The index is then asked again only once a moment, so that requests do not queue up
//!   behind its time-outs.
//! - That an app does not exist is remembered shortly, apart from the known apps: whoever tries
//!   names pushes nobody's record out.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use push_index::{Apps, IndexError};
use push_model::{app::App, ids::AppId};
use quick_cache::sync::Cache;
use tokio::{sync::Mutex, time::Instant};

use crate::{rate::Limiter, settings::AppSettings};

/// How many names without an app are remembered.
const MAX_UNKNOWN: usize = 10_000;
/// How long the index is left alone after it did not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The index did not answer and nothing usable is known of the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index is away and the app is not known here")]
pub(crate) struct Away;

/// An app, with what is held for it here.
#[derive(Debug)]
pub(crate) struct KnownApp {
    pub(crate) app: App,
    pub(crate) limiter: Option<Arc<Limiter>>,
}

/// What is known of a name.
#[derive(Debug, Clone)]
enum Known {
    App(Arc<KnownApp>),
    NoApp,
    Nothing,
}

#[derive(Debug, Clone)]
struct Held {
    known: Known,
    /// When the index said so.
    fetched: Instant,
    /// Not before this is the index asked again.
    ask_again: Instant,
}

#[derive(Debug)]
struct Slot {
    held: RwLock<Held>,
    asking: Mutex<()>,
}

impl Slot {
    /// A slot for a name that nobody has asked for.
    fn empty() -> Self {
        let now = Instant::now();
        let held = Held { known: Known::Nothing, fetched: now, ask_again: now };
        Self { held: RwLock::new(held), asking: Mutex::new(()) }
    }

    fn held(&self) -> Held {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hold(&self, held: Held) {
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = held;
    }
}

/// The app records of this process.
pub(crate) struct AppCache {
    index: Arc<dyn Apps>,
    settings: AppSettings,
    apps: Cache<AppId, Arc<Slot>>,
    /// Names without an app, and those that are asked for the first time.
    strangers: Cache<AppId, Arc<Slot>>,
}

impl AppCache {
    pub(crate) fn new(index: Arc<dyn Apps>, settings: AppSettings) -> Self {
        let apps = Cache::new(settings.max_apps);
        Self { index, apps, strangers: Cache::new(MAX_UNKNOWN), settings }
    }

    /// The app, if there is one. Asking the index is boxed: it is rare, and its three kilobytes
    /// would lie in every connection.
    pub(crate) async fn get(&self, id: &AppId) -> Result<Option<Arc<KnownApp>>, Away> {
        let slot = self.apps.get(id).unwrap_or_else(|| self.stranger(id));
        let (held, now) = (slot.held(), Instant::now());
        if now < held.ask_again {
            return self.usable(held, now);
        }
        Box::pin(self.ask_for(id, slot)).await
    }

    /// Forgets an app's record, so that the index is asked for it next time.
    pub(crate) fn forget(&self, id: &AppId) {
        self.apps.remove(id);
    }

    fn stranger(&self, id: &AppId) -> Arc<Slot> {
        let Ok(slot) =
            self.strangers.get_or_insert_with(id, || Ok::<_, Infallible>(Arc::new(Slot::empty())));
        slot
    }

    /// Asks for an app; those who waited use the answer.
    async fn ask_for(&self, id: &AppId, slot: Arc<Slot>) -> Result<Option<Arc<KnownApp>>, Away> {
        let _asking = slot.asking.lock().await;
        // Whoever asked first may have found that this is no stranger.
        let before = self.apps.get(id).as_ref().unwrap_or(&slot).held();
        let now = Instant::now();
        if now < before.ask_again {
            return self.usable(before, now);
        }
        let answer = self.ask(id).await;
        let now = Instant::now();
        let fresh = |known| Held { known, fetched: now, ask_again: now + self.settings.fresh };
        let held = match answer {
            Ok(Some(app)) => fresh(Known::App(known_app(app, &before.known, now))),
            Ok(None) => fresh(Known::NoApp),
            Err(Away) => {
                let known = match before.known {
                    Known::App(app) => Known::App(app),
                    Known::NoApp | Known::Nothing => Known::Nothing,
                };
                Held { known, ask_again: now + RETRY_PAUSE, ..before }
            }
        };
        slot.hold(held.clone());
        let (from, to) = match held.known {
            Known::App(_) => (&self.strangers, &self.apps),
            Known::NoApp | Known::Nothing => (&self.apps, &self.strangers),
        };
        to.insert(id.clone(), Arc::clone(&slot));
        from.remove(id);
        self.usable(held, now)
    }

    async fn ask(&self, id: &AppId) -> Result<Option<App>, Away> {
        let asked = tokio::time::timeout(self.settings.index_timeout, self.index.app(id)).await;
        let error: &(dyn std::error::Error + 'static) = match &asked {
            Ok(Ok(app)) => return Ok(app.clone()),
            Ok(Err(error)) => error,
            Err(elapsed) => elapsed,
        };
        if let Some(IndexError::Corrupt(what)) = error.downcast_ref() {
            tracing::error!(app = %id, what, "an app's record is unreadable");
        } else {
            tracing::warn!(app = %id, error, "the index did not answer for an app");
        }
        Err(Away)
    }

    fn usable(&self, held: Held, now: Instant) -> Result<Option<Arc<KnownApp>>, Away> {
        let age = now.saturating_duration_since(held.fetched);
        match held.known {
            Known::App(app) if age <= self.settings.stale => Ok(Some(app)),
            Known::App(_) | Known::Nothing => Err(Away),
            Known::NoApp => Ok(None),
        }
    }
}

/// An app's new record. It keeps what was used of its limit, unless it is another app's.
fn known_app(app: App, before: &Known, now: Instant) -> Arc<KnownApp> {
    let before = match before {
        Known::App(before) if before.app.generation == app.generation => before.limiter.as_ref(),
        Known::App(_) | Known::NoApp | Known::Nothing => None,
    };
    let limiter = app.rate_limit.map(|limit| match before {
        Some(limiter) if limiter.limit() == limit => Arc::clone(limiter),
        _ => Arc::new(Limiter::new(limit, now)),
    });
    Arc::new(KnownApp { app, limiter })
}

impl fmt::Debug for AppCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppCache").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use async_trait::async_trait;
    use push_model::{secret::Secret, time::UnixMillis};

    use super::*;

    const FRESH: Duration = Duration::from_secs(3);
    const STALE: Duration = Duration::from_secs(300);

    /// One app, an index that can be away, and how often it was asked.
    #[derive(Default)]
    struct One(std::sync::Mutex<(Option<App>, bool, u32)>);

    impl One {
        fn set(&self, change: impl FnOnce(&mut App)) {
            self.0.lock().unwrap().0.as_mut().map(change);
        }

        fn away(&self, away: bool) {
            self.0.lock().unwrap().1 = away;
        }

        fn asked(&self) -> u32 {
            self.0.lock().unwrap().2
        }
    }

    #[async_trait]
    impl Apps for One {
        async fn create_app(&self, app: &App) -> Result<bool, IndexError> {
            Ok(self.0.lock().unwrap().0.replace(app.clone()).is_none())
        }

        async fn update_app(&self, _: &App) -> Result<bool, IndexError> {
            Ok(false)
        }

        async fn app(&self, id: &AppId) -> Result<Option<App>, IndexError> {
            tokio::task::yield_now().await;
            let mut one = self.0.lock().unwrap();
            one.2 += 1;
            if one.1 {
                return Err(IndexError::Unreachable("away".into()));
            }
            Ok(one.0.clone().filter(|app| app.app_id == *id))
        }

        async fn apps(&self) -> Result<Vec<App>, IndexError> {
            Ok(Vec::new())
        }

        async fn remove_app(&self, _: &AppId) -> Result<bool, IndexError> {
            Ok(self.0.lock().unwrap().0.take().is_some())
        }
    }

    async fn cache_of(id: &AppId) -> (Arc<One>, AppCache) {
        let one = Arc::new(One::default());
        let app = App::new(id.clone(), &Secret::generate(), UnixMillis(0));
        one.create_app(&app).await.unwrap();
        let settings = AppSettings {
            fresh: FRESH,
            stale: STALE,
            max_apps: 10,
            index_timeout: Duration::from_secs(1),
        };
        (one.clone(), AppCache::new(one, settings))
    }

    async fn disabled(cache: &AppCache, id: &AppId) -> Option<bool> {
        cache.get(id).await.unwrap().map(|known| known.app.disabled)
    }

    #[tokio::test(start_paused = true)]
    async fn a_disabled_app_is_noticed_when_its_record_is_no_longer_fresh() {
        let id = "a".parse().unwrap();
        let (one, cache) = cache_of(&id).await;
        assert_eq!(disabled(&cache, &id).await, Some(false));
        one.set(|app| app.disabled = true);
        assert_eq!(disabled(&cache, &id).await, Some(false));
        tokio::time::advance(FRESH).await;
        assert_eq!(disabled(&cache, &id).await, Some(true));
        one.remove_app(&id).await.unwrap();
        tokio::time::advance(FRESH).await;
        assert_eq!(disabled(&cache, &id).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_ask_the_index_once() {
        let id: AppId = "a".parse().unwrap();
        let (one, cache) = cache_of(&id).await;
        let many = || async {
            let (a, b, c) = tokio::join!(cache.get(&id), cache.get(&id), cache.get(&id));
            assert!(a.unwrap().is_some() && b.unwrap().is_some() && c.unwrap().is_some());
        };
        many().await;
        assert_eq!(one.asked(), 1);
        tokio::time::advance(FRESH).await;
        many().await;
        assert_eq!(one.asked(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_app_pushes_on_while_the_index_is_away_but_not_for_ever() {
        let id: AppId = "a".parse().unwrap();
        let (one, cache) = cache_of(&id).await;
        assert!(cache.get(&id).await.is_ok());
        one.away(true);
        tokio::time::advance(FRESH).await;
        for _ in 0..5 {
            assert_eq!(disabled(&cache, &id).await, Some(false));
        }
        assert_eq!(one.asked(), 2, "the index is left alone for a moment");
        let stranger = "b".parse().unwrap();
        for _ in 0..5 {
            assert_eq!(cache.get(&stranger).await.unwrap_err(), Away);
        }
        assert_eq!(one.asked(), 3, "also if it is asked for somebody else");
        tokio::time::advance(STALE).await;
        assert_eq!(cache.get(&id).await.unwrap_err(), Away);
        one.away(false);
        tokio::time::advance(RETRY_PAUSE).await;
        assert_eq!(disabled(&cache, &id).await, Some(false));
        assert_eq!(disabled(&cache, &stranger).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn that_an_app_does_not_exist_is_remembered_shortly() {
        let (one, cache) = cache_of(&"a".parse().unwrap()).await;
        let id = "b".parse().unwrap();
        for _ in 0..5 {
            assert_eq!(disabled(&cache, &id).await, None);
        }
        assert_eq!(one.asked(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_app_keeps_what_it_used_of_its_limit_when_its_record_is_read_again() {
        let id: AppId = "a".parse().unwrap();
        let (one, cache) = cache_of(&id).await;
        one.set(|app| app.rate_limit = NonZeroU32::new(1));
        let limiter = |known: Option<Arc<KnownApp>>| known.unwrap().limiter.clone().unwrap();
        let before = limiter(cache.get(&id).await.unwrap());
        tokio::time::advance(FRESH).await;
        assert!(Arc::ptr_eq(&before, &limiter(cache.get(&id).await.unwrap())));
        one.set(|app| app.rate_limit = NonZeroU32::new(2));
        tokio::time::advance(FRESH).await;
        assert_eq!(limiter(cache.get(&id).await.unwrap()).limit().get(), 2);
    }
}
