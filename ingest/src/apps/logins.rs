//! The app that a request is for, by the App ID in its path and the secret in its `Authorization` header.
//!
//! A secret is valid for the calls that are among its scopes. One without the scope of the call is answered
//! 21004, like a wrong one, because the contract has one code for a secret that does not open the
//! call; the text says what is missing. That tells only the holder of a secret that it is one.
//!
//! A failed login tells nothing but that it failed. The answer to it comes after
//! [`FAILED_LOGIN_TIME`], whether the app exists or not, is cached or has to be read, and however
//! many secrets it has: the work differs, and an answer that came when the work is done would tell.

use std::{net::IpAddr, sync::Arc, time::Duration};

use push_boot::{failed_logins::FailedLoginCount, network::failures::Failures};
use push_index::Apps;
use push_model::{
    app::{AppKey, Scope, VerifiedSecret},
    ids::AppId,
    time::UnixMillis,
};
use tokio::time::{Instant, sleep_until};

use super::{
    cache::AppCache,
    entry::{CachedApp, NoRecord},
    message_quotas::UsageToWrite,
};
use crate::{
    body::BodyMemory,
    head::Head,
    index_client::IndexOutage,
    metrics::{Level, Metrics},
    rejection::Rejection,
    settings::AppSettings,
};

/// The time after which a failed login is answered: longer than reading a record takes, so that
/// it does not tell whether one was read.
pub(crate) const FAILED_LOGIN_TIME: Duration = Duration::from_millis(50);

/// The apps, and the failed authentications of each address.
#[derive(Debug)]
pub(crate) struct Logins {
    apps: Arc<AppCache>,
    failed: Failures,
    metrics: Arc<Metrics>,
    /// Failed logins with an App ID that no app has, since they were last reported.
    failed_at_no_app: FailedLoginCount,
}

/// The authenticated caller of a request.
pub(crate) struct Caller {
    pub(crate) app: AppId,
    pub(crate) cached: Arc<CachedApp>,
    proof: Proof,
}

/// Why a caller may act for an app.
enum Proof {
    /// A secret of the app.
    Secret(VerifiedSecret),
    /// This program vouches for a user with this name.
    Program(String),
}

impl Caller {
    /// The key of the app, which tells it from earlier apps of its name.
    pub(crate) fn key(&self) -> AppKey {
        AppKey::from(&self.cached.app)
    }

    /// The name of the secret, or of the user for whom this program vouches.
    pub(crate) fn secret_name(&self) -> Option<&str> {
        match &self.proof {
            Proof::Secret(secret) => {
                self.cached.app.all_secrets().nth(secret.position).map(|secret| secret.name)
            }
            Proof::Program(user) => Some(user),
        }
    }
}

impl Logins {
    pub(crate) fn new(
        index: Arc<dyn Apps>,
        outage: IndexOutage,
        settings: AppSettings,
        memory: Arc<BodyMemory>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let failed = Failures::new(settings.max_failed_logins, Instant::now());
        let most = settings.max_apps;
        let apps = Arc::new(AppCache::new(index, outage, settings, memory, Arc::clone(&metrics)));
        // Weak: the cache has the metrics, too.
        let cache = Arc::downgrade(&apps);
        let level = Level::new(most, move || cache.upgrade().map_or(0, |cache| cache.len()));
        // Set before only if these metrics are those of another service too.
        let _ = metrics.levels.cached_apps.set(level);
        Self { apps, failed, metrics, failed_at_no_app: FailedLoginCount::default() }
    }

    /// Authenticates a request for the app with this id: it must have a secret of the app with this scope.
    pub(crate) async fn authenticate(
        &self,
        id: &str,
        head: &Head<'_>,
        scope: Scope,
        now: UnixMillis,
    ) -> Result<Caller, Rejection> {
        if id.is_empty() {
            return Err(Rejection::AppIdMissing);
        }
        let id: AppId = id.parse().map_err(Rejection::AppIdIllegal)?;
        head.note_app(&id);
        let secret = head.authorization.filter(|secret| !secret.is_empty());
        let secret = secret.ok_or(Rejection::SecretMissing)?;
        let (cached, secret) = self.login(&id, secret, scope, head.peer, now).await?;
        Ok(Caller { app: id, cached, proof: Proof::Secret(secret) })
    }

    /// Returns the app with this id, if the secret is one of its own and has this scope. `address` is the
    /// client's.
    pub(super) async fn login(
        &self,
        id: &AppId,
        secret: &[u8],
        scope: Scope,
        address: IpAddr,
        at: UnixMillis,
    ) -> Result<(Arc<CachedApp>, VerifiedSecret), Rejection> {
        let now = Instant::now();
        // Counted when the index is asked, not when it has answered: a client that goes away before
        // the answer has still made the index look.
        let mut counted = None;
        let may_ask = || {
            let count = self.failed.count(address, now);
            counted = Some(count);
            count.is_ok()
        };
        match self.apps.get(id, now, may_ask).await {
            Ok(Some(cached)) => {
                if let Some(verified) = cached.app.verify(secret, at) {
                    if let Some(Ok(())) = counted {
                        self.failed.take_back(address);
                    }
                    if verified.scopes.contains(scope) {
                        cached.activity.used(verified, at);
                        return Ok((cached, verified));
                    }
                    // It is a secret of the app, so nothing has to be hidden from its holder.
                    cached.activity.failed_login(address);
                    return Err(cached.refusal(Rejection::ScopeMissing(scope)).await);
                }
                cached.activity.failed_login(address);
            }
            Ok(None) | Err(NoRecord::NotAsked) => {
                self.failed_at_no_app.add(Some(address));
            }
            Err(NoRecord::IndexUnavailable) => {
                return Err(Rejection::Unavailable("the device index is unavailable"));
            }
        }
        self.metrics.failed_logins.inc();
        let counted = counted.unwrap_or_else(|| self.failed.count(address, now));
        // Boxed: most requests need no timer, and it would be part of every connection.
        Box::pin(sleep_until(now + FAILED_LOGIN_TIME)).await;
        Err(match counted {
            Ok(()) => Rejection::SecretIllegal,
            Err(retry_after) => Rejection::TooManyFailedLogins { retry_after },
        })
    }

    /// Returns the app with this id, if the secret is one of its own, whatever its scopes. Nothing is answered
    /// here, so the time that it takes tells nothing.
    pub(crate) async fn verify(
        &self,
        id: &AppId,
        secret: &[u8],
        address: IpAddr,
        at: UnixMillis,
    ) -> Option<Arc<CachedApp>> {
        let now = Instant::now();
        let mut is_counted = false;
        let may_ask = || {
            is_counted = self.failed.count(address, now).is_ok();
            is_counted
        };
        let cached = self.apps.get(id, now, may_ask).await.ok()??;
        cached.app.verify(secret, at)?;
        if is_counted {
            self.failed.take_back(address);
        }
        Some(cached)
    }

    /// Returns the app with this id, for a client that has proved in another way that it may ask.
    pub(crate) async fn app(&self, id: &AppId) -> Result<Option<Arc<CachedApp>>, NoRecord> {
        self.apps.get(id, Instant::now(), || true).await
    }

    /// Returns a user of this program, which vouches for them, as a caller of the app with this id.
    pub(crate) async fn vouch(&self, id: &AppId, user: &str) -> Result<Caller, Rejection> {
        let unavailable = Rejection::Unavailable("the device index is unavailable");
        let cached = self.app(id).await.map_err(|_| unavailable)?;
        let cached = cached.ok_or(Rejection::SecretIllegal)?;
        Ok(Caller { app: id.clone(), cached, proof: Proof::Program(user.to_owned()) })
    }

    pub(crate) fn apps(&self) -> impl Iterator<Item = Arc<CachedApp>> {
        self.apps.found()
    }

    /// The apps whose counts of messages are to be written.
    pub(crate) fn usage_to_write(&self) -> &UsageToWrite {
        self.apps.usage_to_write()
    }

    /// Takes the logins that failed with an App ID that no app has, since the last call.
    pub(crate) fn take_failed_at_no_app(&self) -> push_boot::failed_logins::FailedLogins {
        self.failed_at_no_app.take()
    }

    /// Drops an app's record, so that the next request reads it again.
    pub(crate) fn invalidate(&self, id: &AppId) {
        self.apps.invalidate(id);
    }
}
