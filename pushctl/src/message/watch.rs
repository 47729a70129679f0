//! `pushctl message watch`: the ledger of a message, looked at again and again until it is closed.
//!
//! It only reads, so it can be stopped at any time and any number may watch. What it waits for
//! without an end (a worker, the end of the message) is bounded by `--timeout`, if it is given;
//! an index that does not answer is waited for [`PATIENCE`] at a time.

use std::{num::NonZeroU32, time::Duration};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use push_fanout_worker::progress::Progress;
use push_index::{Index, horizon};
use push_model::{
    ids::{AppId, MessageId, Origin},
    ledger::{Entry, Horizon, Retention},
    report::{self, Report},
    time::UnixMillis,
};
use push_service::{settings::duration, shutdown};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    pace,
    speed::{Look, Speed},
    text,
};
use crate::output::Output;

/// How long the index may be away before watching is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Looking more often than this only costs.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);

/// What to watch.
#[derive(Debug, clap::Args)]
pub struct WatchArgs {
    /// The app
    app_id: AppId,
    /// The message
    message_id: MessageId,
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = interval)]
    interval: Duration,
    /// Fail if the message is not closed by then; without it, wait as long as it takes
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < SHORTEST_INTERVAL {
        return Err(format!("must be at least {SHORTEST_INTERVAL:?}"));
    }
    Ok(interval)
}

/// Shows how the message goes until it is closed, then its ledger.
///
/// # Errors
/// If there is no such message, the index is away for too long, the time is over, or somebody presses
/// Ctrl-C before the message is closed.
pub(super) async fn run(
    args: WatchArgs,
    index: &dyn Index,
    retention: Retention,
    out: Output,
) -> anyhow::Result<()> {
    let WatchArgs { app_id, message_id, interval, timeout } = args;
    let began = index.entry(&app_id, &message_id).await?.is_some();
    let horizon = horizon(index, &message_id, retention).await?;
    if !began && !may_begin(&app_id, &message_id, UnixMillis::now(), horizon) {
        bail!("{app_id} has no message {message_id}");
    }
    let stop = shutdown::on_signal();
    let bar = out.progress(None, "{spinner} {wide_msg}");
    let pace = pace(index, &app_id).await?;
    let mut watch = Watch { app_id, message_id, interval, index, pace, out, bar, last: None };
    let over = tokio::select! {
        closed = watch.until_closed() => Ok(closed),
        () = stop.cancelled() => Err("stopped by a signal".to_owned()),
        bound = pass(timeout) => Err(format!("not closed within {bound:?}")),
    };
    watch.bar.finish_and_clear();
    match over {
        Ok(closed) => {
            let report = Report::of(&closed?, UnixMillis::now());
            out.result(text(&report), &report)
        }
        Err(why) => {
            let state =
                watch.last.as_ref().map_or("not begun by any worker", |last| last.state().name());
            bail!("{why}: message {} is {state}, and goes on unwatched", watch.message_id)
        }
    }
}

/// Whether a message without an entry may still get one: its id must be one of the app's, and if it
/// tells when it was accepted, its entry must not be gone by now.
fn may_begin(app: &AppId, message: &MessageId, now: UnixMillis, horizon: Horizon) -> bool {
    match message.origin(app) {
        Origin::Issued(_) => horizon.waits_since(app, message, now).is_some(),
        Origin::Derived => true,
        Origin::Foreign => false,
    }
}

/// Ends when the time is over, and never if there is no such time.
async fn pass(time: Option<Duration>) -> Duration {
    match time {
        Some(time) => {
            sleep(time).await;
            time
        }
        None => std::future::pending().await,
    }
}

/// Somebody watches a message.
struct Watch<'a> {
    app_id: AppId,
    message_id: MessageId,
    interval: Duration,
    index: &'a dyn Index,
    /// The app's, as it was at the beginning.
    pace: Option<NonZeroU32>,
    out: Output,
    /// Hidden if nobody is looking; then every change is a line of its own.
    bar: ProgressBar,
    /// The entry at the last look.
    last: Option<Entry>,
}

impl Watch<'_> {
    async fn until_closed(&mut self) -> anyhow::Result<Entry> {
        let (started, mut speed) = (Instant::now(), Speed::of_app_with(self.pace));
        self.wait_until_begun().await?;
        loop {
            let Some(entry) = self.look().await? else {
                bail!("the ledger has no message {} any more", self.message_id);
            };
            if is_over(&entry, UnixMillis::now()) {
                return Ok(entry);
            }
            let progress = Progress::of(&entry);
            speed.saw(Look {
                at: started.elapsed(),
                settled: entry.outcomes.total(),
                share: progress.map(Progress::share),
            });
            self.show(&entry, progress, &speed)?;
            self.last = Some(entry);
            sleep(self.interval).await;
        }
    }

    async fn wait_until_begun(&self) -> anyhow::Result<()> {
        let Self { app_id, message_id, .. } = self;
        let mut told = false;
        while self.look().await?.is_none() {
            let wait = format!("waiting: no worker has begun {message_id} of {app_id} yet");
            if !self.bar.is_hidden() {
                self.bar.set_message(wait);
                self.bar.tick();
            } else if !told {
                self.out.note(wait);
                told = true;
            }
            sleep(self.interval).await;
        }
        Ok(())
    }

    /// Reads the entry; waits for an index that is away.
    async fn look(&self) -> anyhow::Result<Option<Entry>> {
        let mut away_since: Option<Instant> = None;
        loop {
            match self.index.entry(&self.app_id, &self.message_id).await {
                Ok(entry) => {
                    if away_since.is_some() {
                        self.note("the index answers again");
                    }
                    return Ok(entry);
                }
                Err(error) if error.may_pass() => {
                    let since = *away_since.get_or_insert_with(|| {
                        self.note(format!("{error}, trying for {PATIENCE:?}"));
                        Instant::now()
                    });
                    if since.elapsed() >= PATIENCE {
                        return Err(error).context("the index was away for too long");
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

    fn show(&self, entry: &Entry, progress: Option<Progress>, speed: &Speed) -> anyhow::Result<()> {
        if self.bar.is_hidden() {
            if self.last.as_ref() == Some(entry) {
                return Ok(());
            }
            return self.out.result(line(entry, progress, speed), &update(entry, progress, speed));
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
        self.bar.set_message(line(entry, progress, speed));
        self.bar.tick();
        Ok(())
    }
}

/// Whether nothing will change any more. One that was recalled before it was planned has no
/// counts to wait for.
fn is_over(entry: &Entry, now: UnixMillis) -> bool {
    let recalled_ahead = entry.recalled_at.is_some() && entry.plan.is_none();
    entry.is_closed() || recalled_ahead || report::is_forgotten(entry, now)
}

/// How it goes, in one line.
fn line(entry: &Entry, progress: Option<Progress>, speed: &Speed) -> String {
    let outcomes = &entry.outcomes;
    let mut parts = vec![entry.state().name().to_owned()];
    if let Some(progress) = progress {
        // Rounded down: 100% is the end of the audience and nothing less.
        parts.push(format!("{}%", (progress.share() * 100.0).floor()));
    }
    parts.push(format!("settled {} of {} targeted", outcomes.total(), entry.targeted));
    let failed = outcomes.failed.values().sum();
    let counts =
        [("failed", failed), ("expired", outcomes.expired), ("recalled", outcomes.recalled)];
    parts.extend(
        counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{what} {count}")),
    );
    if let Some(rate) = speed.devices_per_second() {
        let allowed = speed.allowed();
        let allowed = allowed.map_or_else(String::new, |pace| format!(" (pace {pace}/s)"));
        parts.push(format!("{rate:.0}/s{allowed}"));
    }
    if let Some(left) = speed.time_left() {
        parts.push(format!("{} left", indicatif::HumanDuration(left)));
    }
    parts.join("  ")
}

/// The ledger as `show` describes it, and how it goes.
fn update(entry: &Entry, progress: Option<Progress>, speed: &Speed) -> Value {
    let mut update = json!(Report::of(entry, UnixMillis::now()));
    if let Some(fields) = update.as_object_mut() {
        fields.insert("progress".to_owned(), json!(progress.map(Progress::share)));
        fields.insert("devices_per_second".to_owned(), json!(speed.devices_per_second()));
        fields.insert("pace".to_owned(), json!(speed.allowed()));
        fields.insert(
            "seconds_left".to_owned(),
            json!(speed.time_left().map(|left| left.as_secs_f64())),
        );
    }
    update
}

#[cfg(test)]
mod tests {
    use push_model::{
        ledger::{Checkpoint, FailReason, Opened, Partition, PartitionState, Plan},
        slots::SlotRange,
        time::UnixMillis,
    };

    use super::*;

    fn entry() -> Entry {
        Entry::begin(&Opened {
            message_id: MessageId::issue(&"a".parse().unwrap()),
            app_id: "a".parse().unwrap(),
            accepted_at: UnixMillis(0),
            expires_at: UnixMillis(1000),
            copy: 0,
            keep_until: UnixMillis(2000),
            plan: Some(Plan { partitions: vec![vec![SlotRange { shard: 0, from: 0, to: 1000 }]] }),
            claim: None,
            replaces: None,
        })
    }

    fn move_to(entry: &mut Entry, state: PartitionState) {
        entry.partitions.insert(0, Partition { state, leftovers: Vec::new() });
    }

    fn worked_off(entry: &mut Entry, slots: u64) -> Look {
        let offset = u32::try_from(slots).unwrap();
        let checkpoint = Checkpoint::At { slice: 0, offset };
        move_to(entry, PartitionState { checkpoint, ..PartitionState::default() });
        entry.targeted = slots;
        entry.outcomes.sent = slots - 1;
        entry.outcomes.failed.insert(FailReason::Gone, 1);
        let share = Progress::of(entry).map(Progress::share);
        Look { at: Duration::from_millis(slots), settled: slots, share }
    }

    #[test]
    fn a_line_tells_state_share_counts_rate_and_time_left() {
        let (mut entry, mut speed) = (entry(), Speed::default());
        for slots in [100, 599] {
            speed.saw(worked_off(&mut entry, slots));
        }
        let progress = Progress::of(&entry);
        assert_eq!(
            line(&entry, progress, &speed),
            "sending  59%  settled 599 of 599 targeted  failed 1  1000/s  0 seconds left"
        );
        let update = update(&entry, progress, &speed);
        assert_eq!((&update["progress"], &update["sent"]), (&json!(0.599), &json!(598)));
        assert_eq!(
            (&update["devices_per_second"], &update["pace"]),
            (&json!(1000.0), &json!(null))
        );
        assert!(update["seconds_left"].as_f64().unwrap() < 0.5);
    }

    #[test]
    fn a_line_tells_the_pace_of_the_app_beside_the_rate() {
        let (mut entry, mut speed) = (entry(), Speed::of_app_with(NonZeroU32::new(1200)));
        for slots in [100, 599] {
            speed.saw(worked_off(&mut entry, slots));
        }
        let progress = Progress::of(&entry);
        let paced = line(&entry, progress, &speed);
        assert!(paced.contains("  1000/s (pace 1200/s)  "), "{paced}");
        assert_eq!(update(&entry, progress, &speed)["pace"], 1200);
    }

    #[test]
    fn a_recalled_message_is_over_when_its_devices_are_counted() {
        let mut entry = entry();
        let now = UnixMillis(6);
        assert!(!is_over(&entry, now));
        entry.recalled_at = Some(UnixMillis(5));
        assert!(!is_over(&entry, now), "workers still count what they do not send");
        move_to(&mut entry, PartitionState::ENDED);
        assert!(is_over(&entry, now));
        entry.plan = None;
        assert!(is_over(&entry, now), "it was recalled before it was planned");
    }

    #[test]
    fn only_a_message_that_can_still_begin_is_waited_for() {
        let week = Duration::from_hours(7 * 24);
        let horizon = Horizon { retention: Retention::all(week), forgotten_until: None };
        let app: AppId = "a".parse().unwrap();
        let (now, issued) = (UnixMillis::now(), MessageId::issue(&app));
        assert!(may_begin(&app, &issued, now, horizon));
        assert!(!may_begin(&app, &issued, now.plus(week).plus_seconds(1), horizon));
        let forgotten = Horizon { forgotten_until: issued.time(), ..horizon };
        assert!(!may_begin(&app, &issued, now, forgotten));
        let derived = MessageId::from_idempotency_key(&app, 0, b"k");
        assert!(may_begin(&app, &derived, now, forgotten));
        assert!(!may_begin(&app, &MessageId::void(&app), now, horizon));
    }

    #[test]
    fn looking_without_a_pause_is_refused() {
        assert_eq!(interval("0s"), Err("must be at least 50ms".to_owned()));
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
    }
}
