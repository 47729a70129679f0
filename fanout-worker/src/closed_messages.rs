//! Counts the messages that this worker closed and that count against a quota of their app
//! ([`push_model::usage`]), and writes the counts to the index about once a second.
//!
//! A message is counted where its ledger entry closes: a push to named devices and a broadcast of
//! one partition by the step that ends the partition; a broadcast without devices when it is
//! planned; a broadcast of several partitions by its closing check, because no step knows that it
//! is the last. A step whose answer was lost may be counted twice, and one before a crash not at
//! all. `ingest` then accepts a few messages too many, or too few until it has settled the counts.
//! It does that only while no worker reports messages of the app: a worker reports those that it
//! has worked on for longer than [`LONG`], and those that it puts off.
//!
//! Only messages of apps with a quota say that they count, so others cost nothing here.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use push_index::Index;
use push_model::{
    app::AppKey,
    envelope::Job,
    ledger::Retention,
    time::Clock,
    usage::{UsageCounts, UsageHour},
};
use push_store::IndexError;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Interval at which counts are written.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most apps whose counts are written concurrently.
const APPS_AT_ONCE: usize = 16;
/// Messages that are in work for longer than this are reported.
const LONG: Duration = Duration::from_secs(5);
/// Validity of a report that this worker has messages of an app.
const HELD: Duration = Duration::from_secs(30);
/// Interval at which the report is repeated.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// The most apps whose counts are kept while the index refuses them. The counts of further apps are
/// lost.
const MAX_APPS: usize = 100_000;

type Hours = BTreeMap<UsageHour, UsageCounts>;

/// The counts that are not written yet.
pub(crate) struct ClosedMessages {
    retention: Retention,
    clock: Clock,
    apps: Mutex<HashMap<AppKey, Hours>>,
    in_work: Mutex<BTreeMap<u64, InWork>>,
    /// Notified when there is something to write.
    counted: Notify,
}

/// The apps with a quota whose messages one queue message holds.
#[derive(Debug)]
struct InWork {
    apps: Vec<AppKey>,
    /// When the worker next reports that it has messages of them.
    report_at: Instant,
}

/// Ends the work on a queue message when it is dropped.
pub(crate) struct InWorkGuard<'a> {
    closed: &'a ClosedMessages,
    number: u64,
}

impl Drop for InWorkGuard<'_> {
    fn drop(&mut self) {
        self.closed.in_work().remove(&self.number);
    }
}

impl ClosedMessages {
    /// Counts nothing so far. Entries are kept for `retention`.
    pub(crate) fn new(retention: Retention, clock: Clock) -> Self {
        let (apps, in_work, counted) = (Mutex::default(), Mutex::default(), Notify::new());
        Self { retention, clock, apps, in_work, counted }
    }

    fn in_work(&self) -> MutexGuard<'_, BTreeMap<u64, InWork>> {
        self.in_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apps(&self) -> MutexGuard<'_, HashMap<AppKey, Hours>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that messages are in work. Returns no guard if none of them counts.
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
        in_work.insert(number, InWork { apps, report_at: Instant::now() + LONG });
        self.counted.notify_one();
        Some(InWorkGuard { closed: self, number })
    }

    /// Reports the messages that have been in work for long. Returns false if nothing is in work.
    fn report_long_work(&self) -> bool {
        let (mut apps, now) = (Vec::new(), Instant::now());
        let is_idle = {
            let mut in_work = self.in_work();
            for one in in_work.values_mut().filter(|one| one.report_at <= now) {
                one.report_at = now + REPORT_EVERY;
                apps.extend(one.apps.iter().cloned());
            }
            in_work.is_empty()
        };
        apps.sort_unstable();
        apps.dedup();
        for app in apps {
            let until = (self.clock)().plus(HELD);
            self.add(app, [(UsageHour::HELD, UsageCounts::until(until))]);
        }
        !is_idle
    }

    fn add(&self, app: AppKey, hours: impl IntoIterator<Item = (UsageHour, UsageCounts)>) {
        let mut apps = self.apps();
        if apps.len() >= MAX_APPS && !apps.contains_key(&app) {
            return;
        }
        let of_app = apps.entry(app).or_default();
        for (hour, counts) in hours {
            of_app.entry(hour).or_default().add(&counts);
        }
        self.counted.notify_one();
    }

    /// Counts a message whose ledger entry was closed.
    pub(crate) fn count(&self, job: &Job) {
        self.count_as(job, |counts| UsageCounts { closed: 1, ..counts });
    }

    /// Takes back that a message was accepted, because it repeats one that was accepted before: it
    /// makes no ledger entry.
    pub(crate) fn count_repeated(&self, job: &Job) {
        self.count_as(job, |counts| UsageCounts { accepted: -1, ..counts });
    }

    /// Reports that a message comes back after this time, so that `ingest` waits for it.
    pub(crate) fn report_put_off(&self, job: &Job, delay: Duration) {
        if job.counted {
            // Engines may make a delay longer by a quarter and a second.
            let until = (self.clock)().plus(delay + delay / 4 + HELD);
            self.add(job.app(), [(UsageHour::HELD, UsageCounts::until(until))]);
        }
    }

    fn count_as(&self, job: &Job, change: impl FnOnce(UsageCounts) -> UsageCounts) {
        if !job.counted {
            return;
        }
        let hour = UsageHour::of(job.audience.kind().into(), job.head.accepted_at);
        let counts = UsageCounts::new(&hour, job.head.expires_at, self.retention);
        self.add(job.app(), [(hour, change(counts))]);
    }

    /// Writes the counts. Counts that the index refuses wait for the next write.
    pub(crate) async fn write(&self, index: &dyn Index) {
        let write = async |(app, hours): (AppKey, Hours)| {
            let more: Vec<_> = hours.into_iter().collect();
            match index.add_usage(&app, &more, (self.clock)()).await {
                Ok(_) => {}
                Err(error) => {
                    debug!(%app, error = &error as &dyn std::error::Error, "closed messages were not counted");
                    // Counted twice, they would let the app have too many; not at all, too few.
                    if !matches!(error, IndexError::Corrupt(_)) {
                        self.add(app, more);
                    }
                }
            }
        };
        let all = std::mem::take(&mut *self.apps());
        stream::iter(all).for_each_concurrent(APPS_AT_ONCE, write).await;
    }

    /// Writes the counts about once a second until the worker stops.
    pub(crate) async fn keep_writing(&self, index: &dyn Index, stopping: &CancellationToken) {
        let counted = async || {
            self.counted.notified().await;
            tokio::time::sleep(INTERVAL).await;
        };
        while stopping.run_until_cancelled(counted()).await.is_some() {
            if self.report_long_work() {
                self.counted.notify_one();
            }
            self.write(index).await;
        }
    }
}

impl fmt::Debug for ClosedMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClosedMessages").field("apps", &self.apps().len()).finish_non_exhaustive()
    }
}
