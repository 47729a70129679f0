//! Counts what this worker closed of messages that count against a quota of their app
//! ([`push_model::usage`]), and writes it to the index about once a second.
//!
//! A message is counted where its ledger entry closes: a push to named devices and a broadcast of one
//! partition with the step that ends the partition, a broadcast without devices when it is planned, and
//! one of several partitions by its closing check, because no step knows that it is the last one. A
//! step whose answer was lost may be counted twice, and one before a crash not at all: `ingest` then
//! takes a few messages too many, or too few until it has settled the counts. It does that only while
//! no worker says that it has messages of the app: one says so of what is in work for longer than
//! [`LONG`], and of what it puts off.
//!
//! Only messages of apps with a quota say that they count, so others cost nothing here.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use push_index::IndexError;
use push_model::{
    app::AppKey,
    envelope::Job,
    time::UnixMillis,
    usage::{UsageCounts, UsageHour},
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::context::Context;

/// How often counts are written.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many apps' counts are written at once.
const APPS_AT_ONCE: usize = 16;
/// From then on it is said of a message in work.
const LONG: Duration = Duration::from_secs(5);
/// How long it holds that a worker has messages of an app, and how often it is said.
const HELD: Duration = Duration::from_secs(30);
const SAID_EVERY: Duration = Duration::from_secs(10);
/// The most apps whose counts are kept while the index does not take them; those of others are lost.
const MAX_APPS: usize = 100_000;

type Hours = BTreeMap<UsageHour, UsageCounts>;

/// What is counted and not written yet.
#[derive(Debug, Default)]
pub(crate) struct ClosedMessages {
    apps: Mutex<HashMap<AppKey, Hours>>,
    in_work: Mutex<BTreeMap<u64, InWork>>,
    /// Notified when there is something to write.
    counted: Notify,
}

/// The counted messages of one queue message in work.
#[derive(Debug)]
struct InWork {
    apps: Vec<AppKey>,
    /// When it is to be said that a worker has them.
    said_at: Instant,
}

/// A queue message is in work until this is dropped.
pub(crate) struct InWorkGuard<'a> {
    of: &'a ClosedMessages,
    number: u64,
}

impl Drop for InWorkGuard<'_> {
    fn drop(&mut self) {
        self.of.in_work().remove(&self.number);
    }
}

impl ClosedMessages {
    fn in_work(&self) -> MutexGuard<'_, BTreeMap<u64, InWork>> {
        self.in_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that messages are in work. None of its own if none of them counts.
    pub(crate) fn begin<'a>(&self, jobs: impl Iterator<Item = &'a Job>) -> Option<InWorkGuard<'_>> {
        let mut apps: Vec<AppKey> = Vec::new();
        for job in jobs.filter(|job| job.counted) {
            let is_known =
                |app: &AppKey| app.id == job.head.app_id && app.generation == job.app_generation;
            if !apps.iter().any(is_known) {
                apps.push(job.app());
            }
        }
        if apps.is_empty() {
            return None;
        }
        let mut in_work = self.in_work();
        let number = in_work.last_key_value().map_or(0, |(last, _)| last + 1);
        in_work.insert(number, InWork { apps, said_at: Instant::now() + LONG });
        self.counted.notify_one();
        Some(InWorkGuard { of: self, number })
    }

    /// Says of what is in work for long that this worker has it. False if nothing is in work.
    fn say_what_is_held(&self, now: UnixMillis) -> bool {
        let (mut apps, at) = (Vec::new(), Instant::now());
        let is_idle = {
            let mut in_work = self.in_work();
            for one in in_work.values_mut().filter(|one| one.said_at <= at) {
                one.said_at = at + SAID_EVERY;
                apps.extend(one.apps.iter().cloned());
            }
            in_work.is_empty()
        };
        apps.sort_unstable();
        apps.dedup();
        for app in apps {
            self.add(app, [(UsageHour::HELD, UsageCounts::until(now.plus(HELD)))]);
        }
        !is_idle
    }

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

    /// Says that a message comes back after this time, so that it is waited for.
    pub(crate) fn count_put_off(&self, job: &Job, delay: Duration) {
        if job.counted {
            // Engines may make a delay longer by a quarter and a second.
            let until = self.now().plus(delay + delay / 4 + HELD);
            self.closed.add(job.app(), [(UsageHour::HELD, UsageCounts::until(until))]);
        }
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
        if context.closed.say_what_is_held(context.now()) {
            context.closed.counted.notify_one();
        }
        context.write_closed().await;
    }
}
