//! The quotas of messages: places for pushes and early recalls, and the exchange with the index of what
//! was counted ([`crate::apps::MessageUsage`]).

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use push_model::{
    app::AppKey,
    ledger::Retention,
    time::UnixMillis,
    usage::{UsageCounts, UsageHour, UsageKind},
};
use push_queue::Queue;
use push_store::IndexError;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    apps::{CachedApp, LOOK_EVERY, Logins, MessagePlaces, MessageUsage, UsageLeaks, claim},
    index_client::IndexClient,
    metrics::Metrics,
    rejection::Rejection,
};

/// The pause between two exchanges of counts with the index.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most apps whose counts are exchanged concurrently.
const APPS_AT_ONCE: usize = 16;

/// Exchanges with the index how many messages of each app wait.
#[derive(Debug)]
pub(crate) struct UsageSync {
    pub(super) logins: Arc<Logins>,
    pub(super) index: Arc<IndexClient>,
    pub(super) leaks: UsageLeaks,
    /// The time for which the counts of an app are used.
    pub(super) fresh: Duration,
    pub(super) retention: Retention,
    pub(super) metrics: Arc<Metrics>,
}

impl UsageSync {
    /// Reads what the app uses, unless this process knows it as well as the app's record. While the index
    /// does not answer, what was known before is used, and what this process accepts.
    pub(super) async fn learn(&self, cached: &CachedApp) {
        if let Some((_, usage)) = &cached.messages
            && !usage.is_fresh(self.fresh)
        {
            // Boxed: it is rare, and would be part of every connection.
            Box::pin(self.exchange(usage, Some(Instant::now()))).await;
        }
    }

    /// Takes a place for a message of the app, if its quotas have one left. Returns none if it has no quota.
    pub(super) fn place(
        &self,
        cached: &CachedApp,
        kind: UsageKind,
        now: UnixMillis,
        expires_at: UnixMillis,
    ) -> Result<Option<Box<MessagePlaces>>, Rejection> {
        let Some((quotas, usage)) = &cached.messages else { return Ok(None) };
        let place = usage.place(*quotas, kind, now, expires_at, self.retention);
        place.map(Some).map_err(|used_up| {
            self.leaks.refused(&usage.app);
            Rejection::MessagesUsedUp { app: cached.app.app_id.clone(), used_up }
        })
    }

    /// Exchanges counts again and again, until the future is dropped.
    pub(crate) async fn keep_exchanging(&self) {
        loop {
            sleep(INTERVAL).await;
            self.exchange_all().await;
        }
    }

    /// Exchanges the counts of all apps for which there is something to write or to learn.
    pub(crate) async fn exchange_all(&self) {
        let apps = self.logins.usage_to_write().take();
        let exchange = async |usage: Arc<MessageUsage>| self.exchange(&usage, None).await;
        stream::iter(apps).for_each_concurrent(APPS_AT_ONCE, exchange).await;
    }

    /// Settles lost counts of apps that are refused, until the future is dropped.
    pub(crate) async fn keep_settling(&self, queue: Arc<dyn Queue>) {
        loop {
            sleep(LOOK_EVERY).await;
            let apps = self.leaks.watched();
            if apps.is_empty() {
                continue;
            }
            // An engine that does not answer may have jobs.
            let counts = timeout(self.index.timeout, queue.counts()).await;
            let is_empty = counts.is_ok_and(|counts| counts.is_ok_and(|of| of.jobs.ready == 0));
            for app in apps {
                if let Err(error) = self.settle(&app, is_empty).await {
                    tracing::debug!(%app, error = &error as &dyn std::error::Error, "usage not read");
                }
            }
        }
    }

    async fn settle(&self, app: &AppKey, is_empty: bool) -> Result<(), IndexError> {
        let hours = self.index.index.usage(app).await?;
        let now = UnixMillis::now();
        let lost = self.leaks.look(app, &hours, is_empty, now);
        if lost.is_empty() {
            return Ok(());
        }
        let claim = claim(now);
        let claimed = self.index.index.add_usage(app, &[claim], now).await?;
        let is_first =
            |(hour, counts): &(UsageHour, UsageCounts)| *hour == claim.0 && counts.accepted == 1;
        if claimed.iter().any(is_first) {
            self.index.index.add_usage(app, &lost, now).await?;
            let messages = lost.iter().map(|(_, counts)| counts.closed.unsigned_abs()).sum();
            self.metrics.settled_usage.inc_by(messages);
            tracing::info!(%app, messages, "messages counted as waiting that had ended");
        }
        Ok(())
    }

    /// Exchanges the counts of an app, unless that was done after `since`.
    async fn exchange(&self, usage: &Arc<MessageUsage>, since: Option<Instant>) {
        let write = async |more: &[_]| {
            let now = UnixMillis::now();
            let answer = self.index.index.add_usage(&usage.app, more, now);
            timeout(self.index.timeout, answer)
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
