//! Watching a message: polls its ledger until its entry is closed.
//!
//! It only reads, so a caller can drop it at any time, and several can watch one message. The wait for
//! a worker and for the end of the message has no bound of its own. An index that does not answer is
//! tried for [`MAX_INDEX_OUTAGE`].

use std::{num::NonZeroU32, time::Duration};

use anyhow::{Context as _, bail};
use push_boot::engines::Stores;
use push_ledger::{Ledger, horizon};
use push_model::{
    app::AppKey,
    ids::{AppId, MessageId, Origin},
    ledger::{Entry, Horizon, Retention},
    progress::Progress,
    report::{self, Report},
    time::UnixMillis,
};
use serde::{Serialize, Serializer};
use tokio::time::{Instant, sleep};

use super::{
    check_here, key, pace,
    rate::{RateEstimator, Sample},
};

/// The longest outage of the index before watching fails.
const MAX_INDEX_OUTAGE: Duration = Duration::from_secs(60);

/// An event while a message is watched.
#[derive(Debug)]
pub enum WatchEvent {
    /// No worker has begun the message yet. Sent with each poll.
    NotBegun,
    /// The state at a poll.
    Update(Box<MessageUpdate>),
    /// The source became unavailable, for this reason; it is tried for a while.
    Away(String),
    /// This source answers again.
    Back(String),
}

/// The state of a message while it is sent: its report and how fast it goes.
#[derive(Debug, Clone, Serialize)]
pub struct MessageUpdate {
    /// The report.
    #[serde(flatten)]
    pub report: Report,
    /// The share of the audience that was processed; none if its size is not known.
    #[serde(serialize_with = "share")]
    pub progress: Option<Progress>,
    /// Devices that get an outcome in a second; none before the second poll.
    pub devices_per_second: Option<f64>,
    /// The app's pace when watching began.
    pub pace: Option<NonZeroU32>,
    /// The time to the end at this rate; none if it cannot be estimated.
    pub seconds_left: Option<f64>,
    /// True if the entry changed since the last poll.
    #[serde(skip)]
    pub changed: bool,
}

fn share<S: Serializer>(progress: &Option<Progress>, serializer: S) -> Result<S::Ok, S::Error> {
    progress.map(Progress::share).serialize(serializer)
}

impl MessageUpdate {
    fn of(entry: &Entry, rate: &RateEstimator, changed: bool) -> Self {
        let report = Report::of(entry, UnixMillis::now());
        Self { progress: Progress::of(entry), ..Self::of_report(report, rate, changed) }
    }

    /// Makes the update of a report without a plan, whose progress is not known.
    pub(super) fn of_report(report: Report, rate: &RateEstimator, changed: bool) -> Self {
        Self {
            report,
            progress: None,
            devices_per_second: rate.devices_per_second(),
            pace: rate.pace(),
            seconds_left: rate.time_left().map(|left| left.as_secs_f64()),
            changed,
        }
    }
}

/// Watches a message until it is closed, and returns its last report. The ledger is read once per
/// `interval`. An error of `take` ends the watch.
///
/// # Errors
/// If there is no such message, the index is unavailable for too long, or `take` failed.
pub async fn watch(
    stores: &Stores,
    app_id: &AppId,
    message_id: MessageId,
    retention: Retention,
    interval: Duration,
    take: impl FnMut(WatchEvent) -> anyhow::Result<()> + Send,
) -> anyhow::Result<Report> {
    let (index, ledger) = (&*stores.index, &*stores.ledger);
    let app = key(index, app_id).await?;
    let began = ledger.entry(&app, &message_id).await?.is_some();
    if !began {
        check_here(index, app_id).await?;
    }
    let horizon = horizon(ledger, &app, &message_id, retention).await?;
    if !began && !may_begin(&app, &message_id, UnixMillis::now(), horizon) {
        bail!("{app_id} has no message {message_id}");
    }
    let rate = RateEstimator::with_pace(pace(index, app_id).await?);
    let closed = Watcher { app, message_id, interval, ledger, take }.until_closed(rate).await?;
    Ok(Report::of(&closed, UnixMillis::now()))
}

/// Returns true if a message without an entry may still get one: its id must be one of the app's, and
/// if the id holds the time of acceptance, entries of that time must not be evicted yet.
fn may_begin(app: &AppKey, message: &MessageId, now: UnixMillis, horizon: Horizon) -> bool {
    match message.origin(app) {
        Origin::Issued(_) => horizon.waits_since(app, message, now).is_some(),
        Origin::Derived => true,
        Origin::Foreign => false,
    }
}

/// Polls one message.
struct Watcher<'a, F> {
    app: AppKey,
    message_id: MessageId,
    interval: Duration,
    ledger: &'a dyn Ledger,
    take: F,
}

impl<F: FnMut(WatchEvent) -> anyhow::Result<()>> Watcher<'_, F> {
    async fn until_closed(&mut self, mut rate: RateEstimator) -> anyhow::Result<Entry> {
        let started = Instant::now();
        while self.poll().await?.is_none() {
            (self.take)(WatchEvent::NotBegun)?;
            sleep(self.interval).await;
        }
        let mut last = None;
        loop {
            let Some(entry) = self.poll().await? else {
                bail!("the ledger has no message {} any more", self.message_id);
            };
            if is_final(&entry, UnixMillis::now()) {
                return Ok(entry);
            }
            rate.add(Sample {
                at: started.elapsed(),
                devices: entry.outcomes.total(),
                share: Progress::of(&entry).map(Progress::share),
            });
            let changed = last.as_ref() != Some(&entry);
            let update = MessageUpdate::of(&entry, &rate, changed);
            (self.take)(WatchEvent::Update(Box::new(update)))?;
            last = Some(entry);
            sleep(self.interval).await;
        }
    }

    /// Reads the entry; waits while the index is unavailable.
    async fn poll(&mut self) -> anyhow::Result<Option<Entry>> {
        let mut unavailable_since: Option<Instant> = None;
        loop {
            match self.ledger.entry(&self.app, &self.message_id).await {
                Ok(entry) => {
                    if unavailable_since.is_some() {
                        (self.take)(WatchEvent::Back("the index".to_owned()))?;
                    }
                    return Ok(entry);
                }
                Err(error) if error.may_pass() => {
                    let since = match unavailable_since {
                        Some(since) => since,
                        None => {
                            let text = format!("{error}, trying for {MAX_INDEX_OUTAGE:?}");
                            (self.take)(WatchEvent::Away(text))?;
                            *unavailable_since.insert(Instant::now())
                        }
                    };
                    if since.elapsed() >= MAX_INDEX_OUTAGE {
                        return Err(error).context("the index was unavailable for too long");
                    }
                    sleep(self.interval).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns true if the entry will not change any more. A message that was recalled before it had a
/// plan never gets counts, so it is not waited for.
fn is_final(entry: &Entry, now: UnixMillis) -> bool {
    let recalled_early = entry.recalled_at.is_some() && entry.plan.is_none();
    entry.is_closed() || recalled_early || report::is_overdue(entry, now)
}

#[cfg(test)]
mod tests {
    use push_model::{
        id_key::IdKey,
        ledger::{Checkpoint, FailReason, NewEntry, Partition, PartitionState, Plan},
        slots::SlotRange,
    };
    use serde_json::json;

    use super::*;

    fn entry() -> Entry {
        Entry::begin(&NewEntry {
            message_id: MessageId::issue_named(&"a".parse().unwrap()),
            app: AppKey::first("a".parse().unwrap()),
            accepted_at: UnixMillis(0),
            expires_at: UnixMillis(1000),
            dedup_nonce: 0,
            keep_until: UnixMillis(2000),
            plan: Some(Plan::of(
                push_model::device::TransportKind::Mqtt,
                vec![vec![SlotRange { shard: 0, from: 0, to: 1000 }]],
            )),
            claim: None,
            replaces: None,
            broadcast: None,
        })
    }

    fn move_to(entry: &mut Entry, state: PartitionState) {
        entry.partitions.insert(0, Partition { state, leftovers: Vec::new() });
    }

    fn processed(entry: &mut Entry, slots: u64) -> Sample {
        let offset = u32::try_from(slots).unwrap();
        let checkpoint = Checkpoint::At { range: 0, offset };
        move_to(entry, PartitionState { checkpoint, ..PartitionState::default() });
        entry.targeted = slots;
        entry.outcomes.sent = slots - 1;
        entry.outcomes.failed.insert(FailReason::Gone, 1);
        let share = Progress::of(entry).map(Progress::share);
        Sample { at: Duration::from_millis(slots), devices: slots, share }
    }

    #[test]
    fn an_update_tells_progress_rate_pace_and_time_left_beside_the_report() {
        for pace in [None, NonZeroU32::new(1200)] {
            let (mut entry, mut rate) = (entry(), RateEstimator::with_pace(pace));
            for slots in [100, 599] {
                rate.add(processed(&mut entry, slots));
            }
            let update = json!(MessageUpdate::of(&entry, &rate, true));
            assert_eq!((&update["progress"], &update["sent"]), (&json!(0.599), &json!(598)));
            assert_eq!(update["devices_per_second"], 1000.0);
            assert_eq!(update["pace"], json!(pace));
            assert!(update["seconds_left"].as_f64().unwrap() < 0.5);
        }
    }

    #[test]
    fn a_recalled_message_is_over_when_its_devices_are_counted() {
        let mut entry = entry();
        let now = UnixMillis(6);
        assert!(!is_final(&entry, now));
        entry.recalled_at = Some(UnixMillis(5));
        assert!(!is_final(&entry, now), "workers still count what they do not send");
        move_to(&mut entry, PartitionState::ENDED);
        assert!(is_final(&entry, now));
        entry.plan = None;
        assert!(is_final(&entry, now), "it was recalled before it was planned");
    }

    #[test]
    fn only_a_message_that_can_still_begin_is_waited_for() {
        let week = Duration::from_hours(7 * 24);
        let horizon = Horizon { retention: Retention::all(week), evicted_until: None };
        let app = AppKey::first("a".parse().unwrap());
        let (now, issued) = (UnixMillis::now(), MessageId::issue_named(&app.id));
        assert!(may_begin(&app, &issued, now, horizon));
        assert!(!may_begin(&app, &issued, now.plus(week).plus_seconds(1), horizon));
        let evicted = Horizon { evicted_until: issued.time(), ..horizon };
        assert!(!may_begin(&app, &issued, now, evicted));
        let derived = MessageId::derive(&app.id, &IdKey::from([0; 16]), b"k");
        assert!(may_begin(&app, &derived, now, evicted));
        assert!(!may_begin(&app, &MessageId::void(&app.id), now, horizon));
    }
}
