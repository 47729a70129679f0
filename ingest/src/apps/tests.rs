//! The cache over an index that has one app and can become unavailable.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use push_index::Apps;
use push_model::{
    app::{App, Scope},
    ids::AppId,
    secret::Secret,
    time::UnixMillis,
};
use push_store::IndexError;
use tokio::time::Instant;

use super::{
    cache::{AppCache, RETRY_PAUSE},
    directory::MIN_FRESH,
    entry::{CachedApp, NoRecord},
    logins::{FAILED_LOGIN_TIME, Logins},
};
use crate::{
    body::tests::memory, index_client::IndexOutage, metrics::Metrics, rejection::Rejection,
    settings::AppSettings,
};

const FRESH: Duration = Duration::from_secs(3);
const STALE: Duration = Duration::from_secs(300);
/// The time that the index takes for an answer.
const READ_TIME: Duration = Duration::from_millis(3);
/// The most logins of an address that may fail in a minute.
const MAX_FAILED: u32 = 5;

/// An index of at most one app.
#[derive(Default)]
struct OneApp(Mutex<OneAppState>);

#[derive(Default)]
struct OneAppState {
    app: Option<App>,
    unavailable: bool,
    reads: u32,
    lists: u32,
}

impl OneApp {
    fn set(&self, change: impl FnOnce(&mut App)) {
        self.0.lock().unwrap().app.as_mut().map(change);
    }

    fn set_unavailable(&self, unavailable: bool) {
        self.0.lock().unwrap().unavailable = unavailable;
    }

    fn lists(&self) -> u32 {
        self.0.lock().unwrap().lists
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
        tokio::time::sleep(READ_TIME).await;
        let mut state = self.0.lock().unwrap();
        state.reads += 1;
        if state.unavailable {
            return Err(IndexError::Unreachable("unavailable".into()));
        }
        Ok(state.app.clone().filter(|app| app.app_id == *id))
    }

    async fn apps(&self) -> Result<Vec<App>, IndexError> {
        tokio::time::sleep(READ_TIME).await;
        let mut state = self.0.lock().unwrap();
        state.lists += 1;
        if state.unavailable {
            return Err(IndexError::Unreachable("unavailable".into()));
        }
        Ok(state.app.clone().into_iter().collect())
    }

    async fn remove_app(&self, _: &AppId) -> Result<bool, IndexError> {
        Ok(self.0.lock().unwrap().app.take().is_some())
    }
}

fn settings() -> AppSettings {
    AppSettings {
        fresh: FRESH,
        stale: STALE,
        max_apps: 10,
        max_failed_logins: NonZeroU32::new(MAX_FAILED),
        max_devices: None,
        max_waiting: None,
        max_ledger_entries: None,
        max_recalls: 4,
        max_recalls_per_app: 2,
        activity_interval: Duration::from_secs(60),
        index_timeout: Duration::from_secs(1),
    }
}

async fn index_of(id: &AppId, secret: &Secret) -> Arc<OneApp> {
    let index = Arc::new(OneApp::default());
    index.create_app(&App::new(id.clone(), secret, UnixMillis(0))).await.unwrap();
    index
}

async fn cache_of(id: &AppId) -> (Arc<OneApp>, Arc<AppCache>) {
    let index = index_of(id, &Secret::generate()).await;
    let cache =
        AppCache::new(index.clone(), IndexOutage::new(), settings(), memory(0, 0), Arc::default());
    (index, Arc::new(cache))
}

async fn get(cache: &Arc<AppCache>, id: &AppId) -> Result<Option<Arc<CachedApp>>, NoRecord> {
    cache.get(id, Instant::now(), || true).await
}

async fn disabled(cache: &Arc<AppCache>, id: &AppId) -> Option<bool> {
    get(cache, id).await.unwrap().map(|cached| cached.app.disabled)
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
        let (a, b, c) = tokio::join!(get(&cache, &id), get(&cache, &id), get(&cache, &id));
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
    assert!(get(&cache, &id).await.is_ok());
    index.set_unavailable(true);
    tokio::time::advance(FRESH).await;
    for _ in 0..5 {
        assert_eq!(disabled(&cache, &id).await, Some(false));
    }
    assert_eq!(index.reads(), 2, "the index is not asked again at once");
    let unknown = "b".parse().unwrap();
    for _ in 0..5 {
        assert_eq!(get(&cache, &unknown).await.unwrap_err(), NoRecord::IndexUnavailable);
    }
    assert_eq!(index.reads(), 3, "an app that was never read is asked for once");
    tokio::time::advance(STALE).await;
    assert_eq!(get(&cache, &id).await.unwrap_err(), NoRecord::IndexUnavailable);
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
    let limits = |cached: Option<Arc<CachedApp>>| cached.unwrap().limits.clone().unwrap();
    let before = limits(get(&cache, &id).await.unwrap());
    tokio::time::advance(FRESH).await;
    assert!(Arc::ptr_eq(&before, &limits(get(&cache, &id).await.unwrap())));
    index.set(|app| app.rate_limit = NonZeroU32::new(2));
    tokio::time::advance(FRESH).await;
    assert_eq!(limits(get(&cache, &id).await.unwrap()).limit().get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_recall_in_work_counts_on_when_the_record_is_read_again() {
    let id = "app".parse().unwrap();
    let (index, cache) = cache_of(&id).await;
    let before = get(&cache, &id).await.unwrap().unwrap();
    let in_work = [(); 2].map(|()| before.recalls.begin().unwrap());
    index.set(|app| app.rate_limit = NonZeroU32::new(1));
    tokio::time::advance(FRESH).await;
    let after = get(&cache, &id).await.unwrap().unwrap();
    assert!(after.app.rate_limit.is_some(), "the record was read again");
    assert!(after.recalls.begin().is_err());
    drop(in_work);
    assert!(after.recalls.begin().is_ok());
}

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const AT: UnixMillis = UnixMillis(1);

/// Requests for the apps of an index.
struct Clients {
    logins: Logins,
    metrics: Arc<Metrics>,
}

impl Clients {
    fn of(index: &Arc<OneApp>) -> Self {
        let metrics = Arc::<Metrics>::default();
        let (outage, memory) = (IndexOutage::new(), memory(0, 0));
        let logins = Logins::new(index.clone(), outage, settings(), memory, metrics.clone());
        Self { logins, metrics }
    }

    async fn login(&self, id: &str, secret: &[u8], address: IpAddr) -> Result<(), Rejection> {
        let id = id.parse().unwrap();
        self.logins.login(&id, secret, Scope::Push, address, AT).await.map(drop)
    }

    /// Sends a request with a wrong secret; returns the answer and the time that it took.
    async fn fail(&self, id: &str, address: IpAddr) -> (Rejection, Duration) {
        let begun = Instant::now();
        let rejection = self.login(id, b"wrong", address).await.unwrap_err();
        (rejection, begun.elapsed())
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_failed_login_is_answered_does_not_tell_whether_the_app_exists() {
    let (old, new) = (Secret::generate(), Secret::generate());
    let index = index_of(&"a".parse().unwrap(), &old).await;
    let mut answers = Vec::new();
    // The app is not cached and then it is, and so is that another one does not exist.
    for rotate in [false, true] {
        if rotate {
            index.set(|app| app.rotate(&new, AT, UnixMillis(1000)).unwrap());
        }
        let clients = Clients::of(&index);
        for id in ["a", "a", "b", "b"] {
            answers.push(clients.fail(id, STRANGER).await);
        }
        for (id, from) in [("a", ATTACKER), ("c", ATTACKER)] {
            let clients = Clients::of(&index);
            for n in 0..MAX_FAILED {
                answers.push(clients.fail(&format!("x{n}"), from).await);
            }
            let (rejection, after) = clients.fail(id, from).await;
            assert_eq!(rejection, Rejection::TooManyFailedLogins { retry_after: 12 }, "{id}");
            answers.push((Rejection::SecretIllegal, after));
        }
    }
    assert!(answers.iter().all(|(rejection, _)| *rejection == Rejection::SecretIllegal));
    let times: BTreeSet<_> = answers.iter().map(|(_, after)| *after).collect();
    assert_eq!(times.len(), 1, "{times:?}");
    assert!(times.iter().all(|time| *time >= FAILED_LOGIN_TIME));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_fails_too_often_costs_the_index_nothing_and_right_secrets_are_accepted() {
    let secret = Secret::generate();
    let valid = secret.expose().as_bytes();
    let index = index_of(&"a".parse().unwrap(), &secret).await;
    let clients = &Clients::of(&index);
    for n in 0..MAX_FAILED {
        assert_eq!(clients.fail(&format!("x{n}"), ATTACKER).await.0, Rejection::SecretIllegal);
    }
    assert_eq!(index.reads(), MAX_FAILED);
    let invent = async |from| {
        let ids = (0..100).map(|n| format!("y{n}"));
        futures::future::join_all(ids.map(|id| async move { clients.fail(&id, from).await.0 }))
            .await
    };
    for rejection in invent(ATTACKER).await {
        assert_eq!(rejection, Rejection::TooManyFailedLogins { retry_after: 12 });
    }
    assert_eq!((index.reads(), index.lists()), (MAX_FAILED, 1), "invented apps are not looked up");

    // From the attacker's address, and an app of which nothing was read before.
    assert_eq!(clients.login("a", valid, ATTACKER).await, Ok(()));
    assert_eq!(index.reads(), MAX_FAILED + 1);
    tokio::time::advance(FRESH).await;
    assert_eq!(clients.login("a", valid, ATTACKER).await, Ok(()), "its record is read again");

    // An app that is created meanwhile is soon found, too.
    index.remove_app(&"a".parse().unwrap()).await.unwrap();
    let created = App::new("b".parse().unwrap(), &secret, AT);
    index.create_app(&created).await.unwrap();
    tokio::time::advance(MIN_FRESH).await;
    for n in 0..MAX_FAILED {
        let _ = clients.fail(&format!("z{n}"), ATTACKER).await;
    }
    assert_eq!(clients.login("b", valid, ATTACKER).await, Ok(()));

    let reads = index.reads();
    assert_eq!(clients.fail("c", STRANGER).await.0, Rejection::SecretIllegal);
    assert_eq!(index.reads(), reads + 1, "other addresses are not concerned");
    assert_eq!(clients.metrics.failed_logins.get(), u64::from(2 * MAX_FAILED) + 101);
}

#[tokio::test(start_paused = true)]
async fn neither_asking_at_once_nor_going_away_makes_the_index_look_for_more_apps() {
    let index = index_of(&"a".parse().unwrap(), &Secret::generate()).await;
    let clients = &Clients::of(&index);
    let at_once = (0..100).map(|n| async move { clients.fail(&format!("x{n}"), ATTACKER).await });
    futures::future::join_all(at_once).await;
    assert_eq!((index.reads(), index.lists()), (MAX_FAILED, 1));

    tokio::time::advance(MIN_FRESH).await;
    for n in 0..100 {
        let id = format!("y{n}");
        let given_up = tokio::time::timeout(READ_TIME / 2, clients.fail(&id, STRANGER)).await;
        assert!(given_up.is_err());
    }
    tokio::time::sleep(READ_TIME).await;
    assert_eq!((index.reads(), index.lists()), (2 * MAX_FAILED, 2));
    let (rejection, _) = clients.fail("z", STRANGER).await;
    assert_eq!(rejection, Rejection::TooManyFailedLogins { retry_after: 12 });
}

#[tokio::test(start_paused = true)]
async fn an_app_whose_clients_go_away_is_read_no_more_often() {
    let id: AppId = "a".parse().unwrap();
    let (index, cache) = cache_of(&id).await;
    for _ in 0..100 {
        let _ = tokio::time::timeout(READ_TIME / 2, get(&cache, &id)).await;
    }
    assert_eq!(index.reads(), 1);
    assert_eq!(disabled(&cache, &id).await, Some(false));
}

#[tokio::test(start_paused = true)]
async fn an_index_that_does_not_list_its_apps_is_not_asked_again_at_once() {
    let secret = Secret::generate();
    let index = index_of(&"a".parse().unwrap(), &secret).await;
    let clients = &Clients::of(&index);
    for n in 0..MAX_FAILED {
        let _ = clients.fail(&format!("x{n}"), ATTACKER).await;
    }
    index.set_unavailable(true);
    for n in 0..100 {
        let (rejection, _) = clients.fail(&format!("y{n}"), ATTACKER).await;
        assert_eq!(rejection, Rejection::Unavailable("the device index is unavailable"));
    }
    assert_eq!(index.lists(), 1);
    index.set_unavailable(false);
    tokio::time::advance(MIN_FRESH).await;
    assert_eq!(clients.login("a", secret.expose().as_bytes(), ATTACKER).await, Ok(()));
}
