//! The quotas of messages: places for pushes and early recalls, and the exchange with the index of what
//! was counted ([`crate::apps::MessageUsage`]).

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use push_index::IndexError;
use push_model::{
    app::AppKey,
    time::UnixMillis,
    usage::{UsageCounts, UsageHour, UsageKind},
};
use push_queue::Queue;
use tokio::time::{Instant, sleep, timeout};

use super::context::Handlers;
use crate::{
    apps::{CachedApp, LOOK_EVERY, MessagePlaces, MessageUsage, claim},
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
        place.map(Some).map_err(|used_up| {
            self.leaks.refused(&usage.app);
            Rejection::MessagesUsedUp { app: cached.app.app_id.clone(), used_up }
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

    /// Settles lost counts of apps that are refused, until the future is dropped.
    pub(crate) async fn keep_settling_usage(&self, queue: Arc<dyn Queue>) {
        loop {
            sleep(LOOK_EVERY).await;
            let apps = self.leaks.watched();
            if apps.is_empty() {
                continue;
            }
            // An engine that does not answer may have jobs.
            let counts = timeout(self.settings.apps.index_timeout, queue.counts()).await;
            let is_empty = counts.is_ok_and(|counts| counts.is_ok_and(|of| of.jobs.ready == 0));
            for app in apps {
                if let Err(error) = self.settle_usage(&app, is_empty).await {
                    tracing::debug!(%app, error = &error as &dyn std::error::Error, "usage not read");
                }
            }
        }
    }

    async fn settle_usage(&self, app: &AppKey, is_empty: bool) -> Result<(), IndexError> {
        let hours = self.index.usage(app).await?;
        let now = UnixMillis::now();
        let lost = self.leaks.look(app, &hours, is_empty, now);
        if lost.is_empty() {
            return Ok(());
        }
        let claim = claim(now);
        let claimed = self.index.add_usage(app, &[claim], now).await?;
        let is_first =
            |(hour, counts): &(UsageHour, UsageCounts)| *hour == claim.0 && counts.accepted == 1;
        if claimed.iter().any(is_first) {
            self.index.add_usage(app, &lost, now).await?;
            let messages = lost.iter().map(|(_, counts)| counts.closed.unsigned_abs()).sum();
            self.metrics.settled_usage.inc_by(messages);
            tracing::info!(%app, messages, "messages counted as waiting that had ended");
        }
        Ok(())
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
