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
        let cached = self.logins.login(&id, secret, head.peer, now).await?;
        Ok((id, cached))
    }
}
