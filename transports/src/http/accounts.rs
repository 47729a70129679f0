//! The accounts of apps at a provider, unsealed, read and cached for a few seconds.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use push_model::{app::AppKey, device::TransportKind, pace::TrafficClass};
use push_providers::{Provider, exchange::Destination};
use quick_cache::sync::Cache;
use ring::rand::SystemRandom;
use tokio::{sync::Notify, time::Instant};
use tracing::warn;

use super::{
    bearers::Bearers,
    quota::{Quota, Quotas},
    way::Way,
    window::Window,
};

/// The time for which an account is used without asking for it again. A credential that is replaced or
/// removed is not used any longer than that.
const CACHE_TIME: Duration = Duration::from_secs(5);
/// The time for which an account is used while the index does not answer.
const STALE_TIME: Duration = Duration::from_secs(60);
/// The most apps whose accounts are cached.
const MOST_APPS: usize = 10_000;
/// The most identities, and for each the most origins, of which something is remembered.
const MOST_IDENTITIES: usize = 10_000;
const MOST_ORIGINS: usize = 128;
/// The time for which an account that its provider does not accept is left alone.
const STOPPED: Duration = Duration::from_secs(60);

/// Where the credentials of apps come from.
#[async_trait]
pub trait Credentials: Send + Sync + fmt::Debug {
    /// Returns the credential of an app for a transport, unsealed; `None` if the app has none.
    ///
    /// # Errors
    /// If it cannot be read now.
    async fn credential(
        &self,
        app: &AppKey,
        kind: TransportKind,
    ) -> Result<Option<Bytes>, NoCredential>;
}

/// Why a credential cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCredential {
    /// The index does not answer.
    #[error("the index does not answer")]
    Unavailable,
    /// It is sealed with a key that this program does not have.
    #[error("{0}")]
    Sealed(String),
}

/// The accounts of one provider.
pub(super) struct Accounts<P: Provider> {
    credentials: Arc<dyn Credentials>,
    window: u32,
    quota: Option<SharedQuota>,
    by_app: Cache<AppKey, Arc<Cached<P>>>,
    identities: Cache<String, Arc<Identity>>,
    /// The parts of quotas that this worker has acquired, by what their provider counts.
    quotas: Cache<String, Arc<Quota>>,
    /// The number of the next account that is read.
    next: AtomicU64,
}

/// A quota of each account, which all workers keep together.
#[derive(Debug, Clone)]
pub struct SharedQuota {
    /// Where the requests of all workers are counted.
    pub quotas: Arc<dyn Quotas>,
    /// The most requests a second.
    pub a_second: NonZeroU32,
}

struct Cached<P: Provider> {
    credential: Option<Bytes>,
    account: Result<Arc<Account<P>>, Unusable>,
    read_at: Instant,
}

/// Why an app's devices cannot be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The app has no account.
    None,
    /// It cannot be read now.
    Away,
}

/// An account with what is known of it.
pub(super) struct Account<P: Provider> {
    pub(super) account: P::Account,
    /// No other account of this process has it.
    pub(super) number: u64,
    pub(super) identity: Arc<Identity>,
    window: Mutex<Window>,
    /// Notified when a request ends.
    pub(super) freed: Freed,
    stopped_until: Mutex<Option<Instant>>,
    /// Held by the caller who asks if it is still the app's account.
    asking: tokio::sync::Mutex<()>,
}

/// Wakes those that wait for room in a window. Pushes to named devices wait apart, because a broadcast that is
/// woken may not use the room that is left to them.
#[derive(Default)]
pub(super) struct Freed {
    named: Notify,
    broadcasts: Notify,
}

impl Freed {
    pub(super) fn of(&self, class: TrafficClass) -> &Notify {
        match class {
            TrafficClass::Named => &self.named,
            TrafficClass::Broadcast => &self.broadcasts,
        }
    }

    pub(super) fn notify(&self) {
        self.named.notify_one();
        self.broadcasts.notify_one();
    }
}

/// An account as its provider sees it, which several apps may share.
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) bearers: Bearers,
    /// The requests that the provider takes from it, and from others that it counts together with it.
    pub(super) quota: Option<Arc<Quota>>,
    /// The ways to the servers that it uses.
    pub(super) ways: Cache<Destination, Arc<Way>>,
}

impl<P: Provider> Accounts<P> {
    /// Accounts with at most `window` requests at a time for each app.
    pub(super) fn new(
        credentials: Arc<dyn Credentials>,
        window: u32,
        quota: Option<SharedQuota>,
    ) -> Self {
        Self {
            credentials,
            window,
            quota,
            by_app: Cache::new(MOST_APPS),
            identities: Cache::new(MOST_IDENTITIES),
            quotas: Cache::new(MOST_IDENTITIES),
            next: AtomicU64::new(0),
        }
    }

    /// Returns the account of an app.
    pub(super) async fn of(&self, app: &AppKey) -> Result<Arc<Account<P>>, Unusable> {
        let cached = self.by_app.get(app);
        if let Some(cached) = &cached
            && cached.read_at.elapsed() < CACHE_TIME
        {
            return cached.account.clone();
        }
        let read_at = Instant::now();
        let credential = match self.credentials.credential(app, P::KIND).await {
            Ok(credential) => credential,
            Err(NoCredential::Unavailable) => {
                let fresh = cached.filter(|cached| cached.read_at.elapsed() < STALE_TIME);
                return fresh.map_or(Err(Unusable::Away), |cached| cached.account.clone());
            }
            Err(error @ NoCredential::Sealed(_)) => {
                warn!(
                    runbook = "a-transport-cannot-send",
                    %app,
                    transport = P::KIND.name(),
                    %error,
                    "a credential cannot be read"
                );
                let account = Err(Unusable::Away);
                let unread = Cached { credential: None, account, read_at };
                self.by_app.insert(app.clone(), Arc::new(unread));
                return Err(Unusable::Away);
            }
        };
        let account = match cached {
            // Without a credential the answer is not that of one that could not be read.
            Some(cached) if credential.is_some() && cached.credential == credential => {
                cached.account.clone()
            }
            _ => self.read(app, credential.as_deref()),
        };
        let cached = Cached { credential, account: account.clone(), read_at };
        self.by_app.insert(app.clone(), Arc::new(cached));
        account
    }

    /// Returns true if this is still the account of the app. A delivery may last longer than an account is
    /// cached. While one caller asks, the others take it for current.
    pub(super) async fn is_current(&self, app: &AppKey, account: &Arc<Account<P>>) -> bool {
        if let Some(cached) = self.by_app.get(app)
            && cached.read_at.elapsed() < CACHE_TIME
        {
            return cached.account.as_ref().is_ok_and(|current| Arc::ptr_eq(current, account));
        }
        let Ok(_turn) = account.asking.try_lock() else { return true };
        self.of(app).await.is_ok_and(|current| Arc::ptr_eq(&current, account))
    }

    fn quota_of(&self, name: String, shared: &SharedQuota) -> Arc<Quota> {
        let SharedQuota { quotas, a_second } = shared;
        of(&self.quotas, &name, || Arc::new(Quota::new(name.clone(), quotas.clone(), *a_second)))
    }

    fn read(&self, app: &AppKey, credential: Option<&[u8]>) -> Result<Arc<Account<P>>, Unusable> {
        let Some(credential) = credential else { return Err(Unusable::None) };
        let account = P::account(credential, &SystemRandom::new()).map_err(|error| {
            warn!(
                runbook = "a-transport-cannot-send",
                %app,
                transport = P::KIND.name(),
                %error,
                "a credential does not work"
            );
            Unusable::Away
        })?;
        let name = P::identity(&account, app);
        let new = || {
            let quota = self.quota.as_ref();
            let quota = quota.map(|shared| self.quota_of(P::quota_of(&account, app), shared));
            Arc::new(Identity::new(name.clone(), quota))
        };
        let identity = of(&self.identities, &name, new);
        Ok(Arc::new(Account {
            account,
            number: self.next.fetch_add(1, Ordering::Relaxed),
            identity,
            window: Mutex::new(Window::new(self.window)),
            freed: Freed::default(),
            stopped_until: Mutex::new(None),
            asking: tokio::sync::Mutex::new(()),
        }))
    }
}

/// Returns what is cached, or makes it.
fn of<T: Clone>(cache: &Cache<String, T>, name: &str, new: impl FnOnce() -> T) -> T {
    match cache.get_or_insert_with(name, || Ok::<_, std::convert::Infallible>(new())) {
        Ok(cached) => cached,
        Err(never) => match never {},
    }
}

impl<P: Provider> Account<P> {
    pub(super) fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends nothing more over this account for a while. Returns true if it was not stopped.
    pub(super) fn stop(&self) -> bool {
        let now = Instant::now();
        let mut until = self.stopped_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.replace(now + STOPPED).is_none_or(|until| until < now)
    }

    pub(super) fn is_stopped(&self) -> bool {
        let until = self.stopped_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }
}

impl Identity {
    fn new(name: String, quota: Option<Arc<Quota>>) -> Self {
        Self { name, bearers: Bearers::new(), quota, ways: Cache::new(MOST_ORIGINS) }
    }
}

#[cfg(test)]
mod tests {
    use push_model::ids::AppId;
    use push_providers::webhook::{Credential, Webhook};

    use super::*;

    /// Credentials that a test changes.
    #[derive(Debug, Default)]
    struct Changed {
        current: Mutex<Option<Result<Option<Bytes>, NoCredential>>>,
        asked: AtomicU64,
    }

    #[async_trait]
    impl Credentials for Changed {
        async fn credential(
            &self,
            _: &AppKey,
            _: TransportKind,
        ) -> Result<Option<Bytes>, NoCredential> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.current.lock().unwrap().clone().unwrap_or(Ok(None))
        }
    }

    impl Changed {
        fn set(&self, current: Result<Option<Bytes>, NoCredential>) {
            *self.current.lock().unwrap() = Some(current);
        }

        /// Sets a new credential.
        fn renew(&self) {
            let new = Credential::generate("https://app.example/", &SystemRandom::new()).unwrap();
            self.set(Ok(Some(serde_json::to_vec(&new).unwrap().into())));
        }
    }

    fn accounts() -> (Arc<Changed>, Accounts<Webhook>, AppKey) {
        let changed = Arc::new(Changed::default());
        changed.renew();
        let app = AppKey::first("news".parse::<AppId>().unwrap());
        (changed.clone(), Accounts::new(changed, 10, None), app)
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_is_removed_while_it_cannot_be_unsealed_is_none() {
        let (changed, accounts, app) = accounts();
        changed.set(Err(NoCredential::Sealed("no key".to_owned())));
        assert_eq!(accounts.of(&app).await.err(), Some(Unusable::Away));
        changed.set(Ok(None));
        tokio::time::advance(CACHE_TIME).await;
        assert_eq!(accounts.of(&app).await.err(), Some(Unusable::None));
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_is_replaced_during_a_delivery_is_not_used_any_longer_than_it_is_cached()
     {
        let (changed, accounts, app) = accounts();
        let account = accounts.of(&app).await.unwrap();
        assert!(accounts.is_current(&app, &account).await);
        tokio::time::advance(CACHE_TIME).await;
        assert!(accounts.is_current(&app, &account).await, "it is the same");
        changed.renew();
        assert!(accounts.is_current(&app, &account).await, "nobody has asked yet");
        tokio::time::advance(CACHE_TIME).await;
        assert!(!accounts.is_current(&app, &account).await);
        let account = accounts.of(&app).await.unwrap();
        changed.set(Ok(None));
        tokio::time::advance(CACHE_TIME).await;
        assert!(!accounts.is_current(&app, &account).await, "it was removed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_requests_of_a_delivery_ask_once_and_use_the_account_while_the_index_is_away()
     {
        let (changed, accounts, app) = accounts();
        let account = accounts.of(&app).await.unwrap();
        changed.set(Err(NoCredential::Unavailable));
        tokio::time::advance(CACHE_TIME).await;
        let all = (0..1000).map(|_| accounts.is_current(&app, &account));
        assert!(futures::future::join_all(all).await.iter().all(|is_current| *is_current));
        assert_eq!(changed.asked.load(Ordering::Relaxed), 2);
        tokio::time::advance(STALE_TIME).await;
        assert!(!accounts.is_current(&app, &account).await, "for a while");
    }

    #[tokio::test(start_paused = true)]
    async fn no_two_accounts_have_one_number() {
        let (changed, accounts, app) = accounts();
        let mut numbers = std::collections::BTreeSet::new();
        for _ in 0..100 {
            assert!(numbers.insert(accounts.of(&app).await.unwrap().number));
            // Nothing keeps the account, so the next one may have its place in memory.
            changed.set(Ok(None));
            tokio::time::advance(CACHE_TIME).await;
            assert!(accounts.of(&app).await.is_err());
            changed.renew();
            tokio::time::advance(CACHE_TIME).await;
        }
    }
}
