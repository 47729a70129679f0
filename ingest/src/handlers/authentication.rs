//! The App ID in the path, and its secret in the `Authorization` header.

use std::sync::Arc;

use push_model::{ids::AppId, time::UnixMillis};

use super::context::Handlers;
use crate::{apps::CachedApp, head::Head, rejection::Rejection};

impl Handlers {
    /// The app that the request is for, if the request has its secret.
    pub(super) async fn authenticate(
        &self,
        id: &str,
        head: &Head<'_>,
        now: UnixMillis,
    ) -> Result<(AppId, Arc<CachedApp>), Rejection> {
        if id.is_empty() {
            return Err(Rejection::AppIdMissing);
        }
        let id: AppId = id.parse().map_err(Rejection::AppIdIllegal)?;
        let secret = head.authorization.filter(|secret| !secret.is_empty());
        let secret = secret.ok_or(Rejection::SecretMissing)?;
        match self.apps.get(&id).await {
            Ok(Some(cached)) if cached.app.verify(secret, now) => Ok((id, cached)),
            Ok(Some(_)) => Err(Rejection::SecretIllegal),
            Ok(None) => {
                self.decoy_secret.verify(secret);
                Err(Rejection::SecretIllegal)
            }
            Err(_) => Err(Rejection::Unavailable("the device index is away")),
        }
    }
}
