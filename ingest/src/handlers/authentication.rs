//! The App ID in the path, and a secret of that app in the `Authorization` header.
//!
//! A secret is valid for the calls that are among its scopes. One without the scope of the call is answered
//! 21004, like a wrong one, because the contract has one code for a secret that does not open the
//! call; the text says what is missing. That tells only the holder of a secret that it is one.

use std::sync::Arc;

use push_model::{
    app::{AppKey, Scope, VerifiedSecret},
    ids::AppId,
    time::UnixMillis,
};

use super::{broker_auth::is_broker, context::Handlers};
use crate::{apps::CachedApp, body::AppMemory, head::Head, rejection::Rejection};

/// The authenticated caller of a request.
pub(super) struct Caller {
    pub(super) app: AppId,
    pub(super) cached: Arc<CachedApp>,
    pub(super) secret: VerifiedSecret,
}

impl Caller {
    /// The key of the app, which tells it from earlier apps of its name.
    pub(super) fn key(&self) -> AppKey {
        AppKey::from(&self.cached.app)
    }

    /// The name of the secret.
    pub(super) fn secret_name(&self) -> Option<&str> {
        self.cached.app.all_secrets().nth(self.secret.position).map(|secret| secret.name)
    }
}

impl Handlers {
    /// The memory of the app, or of the brokers, whose secret a request has. None if it has none.
    pub(crate) async fn memory_of_caller(&self, head: &Head<'_>) -> Option<Arc<AppMemory>> {
        let route = self.route(head).ok()?;
        let Some(app) = route.app() else {
            let settings = self.settings.broker_auth.as_ref()?;
            return is_broker(head, settings).then(|| Arc::clone(&self.broker_memory));
        };
        let secret = head.authorization?;
        let id = app.parse().ok()?;
        let caller = self.logins.verify(&id, secret, head.peer, UnixMillis::now()).await?;
        Some(Arc::clone(&caller.memory))
    }

    /// The app that the request is for, if the request has a secret of it with this scope.
    pub(super) async fn authenticate(
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
        let (cached, secret) = self.logins.login(&id, secret, scope, head.peer, now).await?;
        Ok(Caller { app: id, cached, secret })
    }
}
