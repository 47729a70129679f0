//! Counts what this worker closed of messages that count against a quota of their app
//! ([`push_model::usage`]), and writes it to the index about once a second.
//!
//! A message is counted where its ledger entry closes: a push to named devices and a broadcast of one
//! partition with the step that ends the partition, a broadcast without devices when it is planned, and
//! one of several partitions by its closing check, because no step knows that it is the last one. A
//! step whose answer was lost may be counted twice, and one before a crash not at all: `ingest` then
//! takes a few messages too many, or too few until the hour of the message is over.
//!
//! Only messages of apps with a quota say that they count, so others cost nothing here.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use push_index::IndexError;
use push_model::{
    app::AppKey,
    envelope::Job,
    usage::{UsageCounts, UsageHour},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::context::Context;

/// How often counts are written.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many apps' counts are written at once.
const APPS_AT_ONCE: usize = 16;
/// The most apps whose counts are kept while the index does not take them; those of others are lost.
const MAX_APPS: usize = 100_000;

type Hours = BTreeMap<UsageHour, UsageCounts>;

/// What is counted and not written yet.
#[derive(Debug, Default)]
pub(crate) struct ClosedMessages {
    apps: Mutex<HashMap<AppKey, Hours>>,
    /// Notified when there is something to write.
    counted: Notify,
}

impl ClosedMessages {
    /// Adds counts of an app.
    fn add(&self, app: AppKey, hours: impl IntoIterator<Item = (UsageHour, UsageCounts)>) {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        if apps.len() >= MAX_APPS && !apps.contains_key(&app) {
            return;
        }
        let of_app = apps.entry(app).or_default();
        for (hour, counts) in hours {
            of_app.entry(hour).or_default().add(&counts);
        }
        self.counted.notify_one();
    }

    fn take(&self) -> HashMap<AppKey, Hours> {
        std::mem::take(&mut *self.apps.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Context {
    /// Counts a message whose ledger entry was closed.
    pub(crate) fn count_closed(&self, job: &Job) {
        self.count(job, |counts| UsageCounts { closed: 1, ..counts });
    }

    /// Takes back that a message was accepted, because it is the repetition of one that was accepted
    /// before: it makes no ledger entry.
    pub(crate) fn count_repeated(&self, job: &Job) {
        self.count(job, |counts| UsageCounts { accepted: -1, ..counts });
    }

    fn count(&self, job: &Job, change: impl FnOnce(UsageCounts) -> UsageCounts) {
        if !job.counted {
            return;
        }
        let hour = UsageHour::of(job.audience.kind().into(), job.head.accepted_at);
        let counts = UsageCounts::new(&hour, job.head.expires_at, self.retention);
        self.closed.add(job.app(), [(hour, change(counts))]);
    }

    /// Writes what was counted. What the index refuses waits for the next time.
    pub(crate) async fn write_closed(&self) {
        let write = async |(app, hours): (AppKey, Hours)| {
            let more: Vec<_> = hours.into_iter().collect();
            match self.index.add_usage(&app, &more, self.now()).await {
                Ok(_) => {}
                Err(error) => {
                    debug!(%app, error = &error as &dyn std::error::Error, "closed messages not counted");
                    // Counted twice, they would let the app have too many; not at all, too few.
                    if !matches!(error, IndexError::Corrupt(_)) {
                        self.closed.add(app, more);
                    }
                }
            }
        };
        stream::iter(self.closed.take()).for_each_concurrent(APPS_AT_ONCE, write).await;
    }
}

/// Writes what was counted until the worker stops.
pub(crate) async fn keep_writing(context: Arc<Context>, stopping: CancellationToken) {
    let counted = async || {
        context.closed.counted.notified().await;
        tokio::time::sleep(INTERVAL).await;
    };
    while stopping.run_until_cancelled(counted()).await.is_some() {
        context.write_closed().await;
    }
}
