//! The cache over an index that has one app and can become unavailable.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use push_index::{Apps, IndexError};
use push_model::{app::App, ids::AppId, secret::Secret, time::UnixMillis};

use super::{
    cache::{AppCache, RETRY_PAUSE},
    entry::{CachedApp, IndexUnavailable},
};
use crate::settings::AppSettings;

const FRESH: Duration = Duration::from_secs(3);
const STALE: Duration = Duration::from_secs(300);

/// An index of at most one app.
#[derive(Default)]
struct OneApp(Mutex<State>);

#[derive(Default)]
struct State {
    app: Option<App>,
    unavailable: bool,
    reads: u32,
}

impl OneApp {
    fn set(&self, change: impl FnOnce(&mut App)) {
        self.0.lock().unwrap().app.as_mut().map(change);
    }

    fn set_unavailable(&self, unavailable: bool) {
        self.0.lock().unwrap().unavailable = unavailable;
    }

    fn reads(&self) -> u32 {
        self.0.lock().unwrap().reads
    }
}

#[async_trait]
impl Apps for OneApp {
    async fn create_app(&self, app: &App) -> Result<bool, IndexError> {
        Ok(self.0.lock().unwrap().app.replace(app.clone()).is_none())
    }

    async fn update_app(&self, _: &App) -> Result<bool, IndexError> {
        Ok(false)
    }

    async fn app(&self, id: &AppId) -> Result<Option<App>, IndexError> {
        tokio::task::yield_now().await;
        let mut state = self.0.lock().unwrap();
        state.reads += 1;
        if state.unavailable {
            return Err(IndexError::Unreachable("unavailable".into()));
        }
        Ok(state.app.clone().filter(|app| app.app_id == *id))
    }

    async fn apps(&self) -> Result<Vec<App>, IndexError> {
        Ok(Vec::new())
    }

    async fn remove_app(&self, _: &AppId) -> Result<bool, IndexError> {
        Ok(self.0.lock().unwrap().app.take().is_some())
    }
}

async fn cache_of(id: &AppId) -> (Arc<OneApp>, AppCache) {
    let index = Arc::new(OneApp::default());
    let app = App::new(id.clone(), &Secret::generate(), UnixMillis(0));
    index.create_app(&app).await.unwrap();
    let settings = AppSettings {
        fresh: FRESH,
        stale: STALE,
        max_apps: 10,
        index_timeout: Duration::from_secs(1),
    };
    (index.clone(), AppCache::new(index, settings))
}

async fn disabled(cache: &AppCache, id: &AppId) -> Option<bool> {
    cache.get(id).await.unwrap().map(|cached| cached.app.disabled)
}

#[tokio::test(start_paused = true)]
async fn a_disabled_app_is_noticed_when_its_record_is_no_longer_fresh() {
    let id = "a".parse().unwrap();
    let (index, cache) = cache_of(&id).await;
    assert_eq!(disabled(&cache, &id).await, Some(false));
    index.set(|app| app.disabled = true);
    assert_eq!(disabled(&cache, &id).await, Some(false));
    tokio::time::advance(FRESH).await;
    assert_eq!(disabled(&cache, &id).await, Some(true));
    index.remove_app(&id).await.unwrap();
    tokio::time::advance(FRESH).await;
    assert_eq!(disabled(&cache, &id).await, None);
}

#[tokio::test(start_paused = true)]
async fn many_requests_ask_the_index_once() {
    let id: AppId = "a".parse().unwrap();
    let (index, cache) = cache_of(&id).await;
    let many = || async {
        let (a, b, c) = tokio::join!(cache.get(&id), cache.get(&id), cache.get(&id));
        assert!(a.unwrap().is_some() && b.unwrap().is_some() && c.unwrap().is_some());
    };
    many().await;
    assert_eq!(index.reads(), 1);
    tokio::time::advance(FRESH).await;
    many().await;
    assert_eq!(index.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cached_app_pushes_on_while_the_index_is_unavailable_but_not_for_ever() {
    let id: AppId = "a".parse().unwrap();
    let (index, cache) = cache_of(&id).await;
    assert!(cache.get(&id).await.is_ok());
    index.set_unavailable(true);
    tokio::time::advance(FRESH).await;
    for _ in 0..5 {
        assert_eq!(disabled(&cache, &id).await, Some(false));
    }
    assert_eq!(index.reads(), 2, "the index is not asked again at once");
    let unknown = "b".parse().unwrap();
    for _ in 0..5 {
        assert_eq!(cache.get(&unknown).await.unwrap_err(), IndexUnavailable);
    }
    assert_eq!(index.reads(), 3, "an app that was never read is asked for once");
    tokio::time::advance(STALE).await;
    assert_eq!(cache.get(&id).await.unwrap_err(), IndexUnavailable);
    index.set_unavailable(false);
    tokio::time::advance(RETRY_PAUSE).await;
    assert_eq!(disabled(&cache, &id).await, Some(false));
    assert_eq!(disabled(&cache, &unknown).await, None);
}

#[tokio::test(start_paused = true)]
async fn that_an_app_does_not_exist_is_cached_shortly() {
    let (index, cache) = cache_of(&"a".parse().unwrap()).await;
    let id = "b".parse().unwrap();
    for _ in 0..5 {
        assert_eq!(disabled(&cache, &id).await, None);
    }
    assert_eq!(index.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_app_keeps_what_it_used_of_its_limit_when_its_record_is_read_again() {
    let id: AppId = "a".parse().unwrap();
    let (index, cache) = cache_of(&id).await;
    index.set(|app| app.rate_limit = NonZeroU32::new(1));
    let limiter = |cached: Option<Arc<CachedApp>>| cached.unwrap().limiter.clone().unwrap();
    let before = limiter(cache.get(&id).await.unwrap());
    tokio::time::advance(FRESH).await;
    assert!(Arc::ptr_eq(&before, &limiter(cache.get(&id).await.unwrap())));
    index.set(|app| app.rate_limit = NonZeroU32::new(2));
    tokio::time::advance(FRESH).await;
    assert_eq!(limiter(cache.get(&id).await.unwrap()).limit().get(), 2);
}
