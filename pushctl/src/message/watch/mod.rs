//! `pushctl message watch`: polls the ledger of a message until its entry is closed.
//!
//! It only reads, so it can be stopped at any time, and several can watch one message. `--timeout`
//! bounds the whole; without it, the wait for a worker and for the end of the message has no bound.
//! An index that does not answer is tried for [`MAX_INDEX_OUTAGE`].
//!
//! - `rate`: estimates devices a second and the time left
//! - `display`: the line and the JSON that show the progress

mod display;
mod rate;

use std::{num::NonZeroU32, time::Duration};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use push_boot::{engines::Stores, settings::duration, shutdown};
use push_fanout_worker::progress::Progress;
use push_index::{Ledger, horizon};
use push_model::{
    app::AppKey,
    ids::{AppId, MessageId, Origin},
    ledger::{Entry, Horizon, Retention},
    report::{self, Report},
    time::UnixMillis,
};
use tokio::time::{Instant, sleep};

use self::rate::{RateEstimator, Sample};
use super::{key, pace, text};
use crate::output::Output;

/// How long the index may be unavailable before the command fails.
const MAX_INDEX_OUTAGE: Duration = Duration::from_secs(60);
/// Polling more often loads the index and shows nothing more.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// What to watch.
#[derive(Debug, clap::Args)]
pub struct WatchArgs {
    /// The app
    app_id: AppId,
    /// The message
    message_id: MessageId,
    /// How often to read the ledger
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = interval)]
    interval: Duration,
    /// Fail if the message is not closed by then; without it, wait as long as it takes
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < MIN_INTERVAL {
        return Err(format!("must be at least {MIN_INTERVAL:?}"));
    }
    Ok(interval)
}

/// Shows how the message goes until it is closed, then its ledger.
///
/// # Errors
/// If there is no such message, the index is unavailable for too long, or `--timeout` or Ctrl-C
/// ends the command before the message is closed.
pub(super) async fn run(
    args: WatchArgs,
    stores: &Stores,
    retention: Retention,
    out: Output,
) -> anyhow::Result<()> {
    let WatchArgs { app_id, message_id, interval, timeout } = args;
    let (index, ledger) = (&*stores.index, &*stores.ledger);
    let app = key(index, &app_id).await?;
    let began = ledger.entry(&app, &message_id).await?.is_some();
    let horizon = horizon(ledger, &app, &message_id, retention).await?;
    if !began && !may_begin(&app, &message_id, UnixMillis::now(), horizon) {
        bail!("{app_id} has no message {message_id}");
    }
    let stop = shutdown::on_signal();
    let bar = out.progress(None, "{spinner} {wide_msg}");
    let pace = pace(index, &app_id).await?;
    let mut watcher = Watcher { app, message_id, interval, ledger, pace, out, bar, last: None };
    let end = tokio::select! {
        closed = watcher.until_closed() => Ok(closed),
        () = stop.cancelled() => Err("stopped by a signal".to_owned()),
        timeout = elapsed(timeout) => Err(format!("not closed within {timeout:?}")),
    };
    watcher.bar.finish_and_clear();
    match end {
        Ok(closed) => {
            let report = Report::of(&closed?, UnixMillis::now());
            out.result(text(&report), &report)
        }
        Err(why) => {
            let state =
                watcher.last.as_ref().map_or("not begun by any worker", |last| last.state().name());
            bail!("{why}: message {} is {state}, and goes on unwatched", watcher.message_id)
        }
    }
}

/// Whether a message without an entry may still get one: its id must be one of the app's, and if
/// the id holds the time of acceptance, entries of that time must not be evicted yet.
fn may_begin(app: &AppKey, message: &MessageId, now: UnixMillis, horizon: Horizon) -> bool {
    match message.origin(app) {
        Origin::Issued(_) => horizon.waits_since(app, message, now).is_some(),
        Origin::Derived => true,
        Origin::Foreign => false,
    }
}

/// Completes when the timeout has elapsed; never without one.
async fn elapsed(timeout: Option<Duration>) -> Duration {
    match timeout {
        Some(timeout) => {
            sleep(timeout).await;
            timeout
        }
        None => std::future::pending().await,
    }
}

/// Polls one message.
struct Watcher<'a> {
    app: AppKey,
    message_id: MessageId,
    interval: Duration,
    ledger: &'a dyn Ledger,
    /// The app's pace when the command began.
    pace: Option<NonZeroU32>,
    out: Output,
    /// Hidden without a terminal; then every change is printed as a line of its own.
    bar: ProgressBar,
    /// The entry at the last poll.
    last: Option<Entry>,
}

impl Watcher<'_> {
    async fn until_closed(&mut self) -> anyhow::Result<Entry> {
        let (started, mut rate) = (Instant::now(), RateEstimator::with_pace(self.pace));
        self.wait_until_begun().await?;
        loop {
            let Some(entry) = self.poll().await? else {
                bail!("the ledger has no message {} any more", self.message_id);
            };
            if is_final(&entry, UnixMillis::now()) {
                return Ok(entry);
            }
            let progress = Progress::of(&entry);
            rate.add(Sample {
                at: started.elapsed(),
                devices: entry.outcomes.total(),
                share: progress.map(Progress::share),
            });
            self.show(&entry, progress, &rate)?;
            self.last = Some(entry);
            sleep(self.interval).await;
        }
    }

    async fn wait_until_begun(&self) -> anyhow::Result<()> {
        let Self { app, message_id, .. } = self;
        let mut noted = false;
        while self.poll().await?.is_none() {
            let wait = format!("waiting: no worker has begun {message_id} of {app} yet");
            if !self.bar.is_hidden() {
                self.bar.set_message(wait);
                self.bar.tick();
            } else if !noted {
                self.out.note(wait);
                noted = true;
            }
            sleep(self.interval).await;
        }
        Ok(())
    }

    /// Reads the entry; waits while the index is unavailable.
    async fn poll(&self) -> anyhow::Result<Option<Entry>> {
        let mut unavailable_since: Option<Instant> = None;
        loop {
            match self.ledger.entry(&self.app, &self.message_id).await {
                Ok(entry) => {
                    if unavailable_since.is_some() {
                        self.note("the index answers again");
                    }
                    return Ok(entry);
                }
                Err(error) if error.may_pass() => {
                    let since = *unavailable_since.get_or_insert_with(|| {
                        self.note(format!("{error}, trying for {MAX_INDEX_OUTAGE:?}"));
                        Instant::now()
                    });
                    if since.elapsed() >= MAX_INDEX_OUTAGE {
                        return Err(error).context("the index was unavailable for too long");
                    }
                    sleep(self.interval).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn note(&self, text: impl std::fmt::Display) {
        self.bar.suspend(|| self.out.note(text));
    }

    fn show(
        &self,
        entry: &Entry,
        progress: Option<Progress>,
        rate: &RateEstimator,
    ) -> anyhow::Result<()> {
        if self.bar.is_hidden() {
            if self.last.as_ref() == Some(entry) {
                return Ok(());
            }
            return self.out.result(
                display::line(entry, progress, rate),
                &display::update(entry, progress, rate),
            );
        }
        if let Some(Progress { done, total }) = progress {
            if self.bar.length().is_none()
                && let Ok(style) = ProgressStyle::with_template("{bar:30} {wide_msg}")
            {
                self.bar.set_style(style);
            }
            self.bar.set_length(total);
            self.bar.set_position(done);
        }
        self.bar.set_message(display::line(entry, progress, rate));
        self.bar.tick();
        Ok(())
    }
}

/// Whether the entry changes no more. One that was recalled before it had a plan never gets counts,
/// so it is not waited for.
fn is_final(entry: &Entry, now: UnixMillis) -> bool {
    let recalled_early = entry.recalled_at.is_some() && entry.plan.is_none();
    entry.is_closed() || recalled_early || report::is_overdue(entry, now)
}

#[cfg(test)]
mod tests {
    use push_model::{
        id_key::IdKey,
        ledger::{NewEntry, Partition, PartitionState, Plan},
        slots::SlotRange,
        time::UnixMillis,
    };

    use super::*;

    pub(super) fn entry() -> Entry {
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
        })
    }

    pub(super) fn move_to(entry: &mut Entry, state: PartitionState) {
        entry.partitions.insert(0, Partition { state, leftovers: Vec::new() });
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

    #[test]
    fn polling_without_a_pause_is_refused() {
        assert_eq!(interval("0s"), Err("must be at least 50ms".to_owned()));
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
    }
}
