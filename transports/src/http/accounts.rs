//! The accounts of apps at a provider, unsealed, read and cached for a few seconds.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
const MOST_ORIGINS: usize = 1024;
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
    pub(super) identity: Arc<Identity>,
    window: Mutex<Window>,
    /// Notified when a request ends.
    pub(super) freed: Freed,
    stopped_until: Mutex<Option<Instant>>,
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
    /// The requests that the provider takes from it.
    pub(super) quota: Option<Quota>,
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
        let (by_app, identities) = (Cache::new(MOST_APPS), Cache::new(MOST_IDENTITIES));
        Self { credentials, window, quota, by_app, identities }
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
                warn!(%app, transport = P::KIND.name(), %error, "a credential cannot be read");
                let account = Err(Unusable::Away);
                let unread = Cached { credential: None, account, read_at };
                self.by_app.insert(app.clone(), Arc::new(unread));
                return Err(Unusable::Away);
            }
        };
        let account = match cached {
            Some(cached) if cached.credential == credential => cached.account.clone(),
            _ => self.read(app, credential.as_deref()),
        };
        let cached = Cached { credential, account: account.clone(), read_at };
        self.by_app.insert(app.clone(), Arc::new(cached));
        account
    }

    fn read(&self, app: &AppKey, credential: Option<&[u8]>) -> Result<Arc<Account<P>>, Unusable> {
        let Some(credential) = credential else { return Err(Unusable::None) };
        let account = P::account(credential, &SystemRandom::new()).map_err(|error| {
            warn!(%app, transport = P::KIND.name(), %error, "a credential does not work");
            Unusable::Away
        })?;
        let name = P::identity(&account, app);
        let new = || {
            Ok::<_, std::convert::Infallible>(Arc::new(Identity::new(
                name.clone(),
                self.quota.clone(),
            )))
        };
        let identity = match self.identities.get_or_insert_with(&name, new) {
            Ok(identity) => identity,
            Err(never) => match never {},
        };
        Ok(Arc::new(Account {
            account,
            identity,
            window: Mutex::new(Window::new(self.window)),
            freed: Freed::default(),
            stopped_until: Mutex::new(None),
        }))
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
    fn new(name: String, quota: Option<SharedQuota>) -> Self {
        let quota = quota.map(|quota| Quota::new(quota.quotas, quota.a_second));
        Self { name, bearers: Bearers::new(), quota, ways: Cache::new(MOST_ORIGINS) }
    }
}
