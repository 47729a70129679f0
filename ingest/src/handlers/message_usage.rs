//! The quotas of messages: places for pushes and early recalls, and the exchange with the index of what
//! was counted ([`crate::apps::MessageUsage`]).

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use push_index::IndexError;
use push_model::{time::UnixMillis, usage::UsageKind};
use tokio::time::{Instant, sleep, timeout};

use super::context::Handlers;
use crate::{
    apps::{CachedApp, MessagePlaces, MessageUsage},
    rejection::Rejection,
};

/// How often counts are exchanged with the index.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many apps' counts are exchanged at once.
const APPS_AT_ONCE: usize = 16;

impl Handlers {
    /// Reads what the app uses, unless this process knows it as well as the app's record. While the index
    /// does not answer, what was known before is used, and what this process accepts.
    pub(super) async fn learn_usage(&self, cached: &CachedApp) {
        if let Some((_, usage)) = &cached.messages
            && !usage.is_fresh(self.settings.apps.fresh)
        {
            // Boxed: it is rare, and would be part of every connection.
            Box::pin(self.exchange_usage(usage, Some(Instant::now()))).await;
        }
    }

    /// A place for a message of the app, if its quotas have one left; none if it has no quota.
    pub(super) fn place(
        &self,
        cached: &CachedApp,
        kind: UsageKind,
        now: UnixMillis,
        expires_at: UnixMillis,
    ) -> Result<Option<Box<MessagePlaces>>, Rejection> {
        let Some((quotas, usage)) = &cached.messages else { return Ok(None) };
        let place = usage.place(*quotas, kind, now, expires_at, self.settings.ledger_retention);
        place.map(Some).map_err(|used_up| Rejection::MessagesUsedUp {
            app: cached.app.app_id.clone(),
            used_up,
        })
    }

    /// Exchanges counts again and again, until the future is dropped.
    pub(crate) async fn keep_exchanging_usage(&self) {
        loop {
            sleep(INTERVAL).await;
            self.exchange_all_usage().await;
        }
    }

    /// Exchanges the counts of all apps for which there is something to write or to learn.
    pub(crate) async fn exchange_all_usage(&self) {
        let apps = self.logins.usage_to_write().take();
        let exchange = async |usage: Arc<MessageUsage>| self.exchange_usage(&usage, None).await;
        stream::iter(apps).for_each_concurrent(APPS_AT_ONCE, exchange).await;
    }

    /// Nothing is asked if that was done after `since`.
    async fn exchange_usage(&self, usage: &Arc<MessageUsage>, since: Option<Instant>) {
        let write = async |more: &[_]| {
            let now = UnixMillis::now();
            let answer = self.index.add_usage(&usage.app, more, now);
            timeout(self.settings.apps.index_timeout, answer)
                .await
                .unwrap_or_else(|elapsed| Err(IndexError::Unsure(elapsed.into())))
        };
        let was_not_written = |error: &IndexError| !error.may_have_happened();
        let done = usage.exchange(since, UnixMillis::now, write, was_not_written).await;
        if let Err(error) = done {
            let app = &usage.app;
            tracing::debug!(%app, error = &error as &dyn std::error::Error, "messages not counted");
        }
    }
}
