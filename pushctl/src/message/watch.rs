//! `pushctl message watch`: follows a message until it is closed, for `--timeout` at most. It only
//! reads, so it can be stopped at any time.

use std::time::Duration;

use anyhow::bail;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use push_boot::{engines::Stores, settings::duration, shutdown};
use push_model::{
    ids::{AppId, MessageId},
    ledger::{MessageState, Retention},
};
use push_operator::message::{MessageUpdate, WatchEvent, watch};
use tokio::time::sleep;

use super::text;
use crate::output::Output;

/// The shortest polling interval. Polling more often loads the index and shows nothing more.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Flags of `message watch`.
#[derive(Debug, clap::Args)]
pub struct WatchArgs {
    /// The app
    app_id: AppId,
    /// The message
    message_id: MessageId,
    /// Read the ledger once per this time
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

/// Shows the progress of the message until it is closed, then its ledger.
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
    let stop = shutdown::on_signal();
    let bar = out.progress(None, "{spinner} {wide_msg}");
    let mut display = Display { out, bar: bar.clone(), state: None, noted: false };
    let take = |event| display.show(event, &app_id, message_id);
    let end = tokio::select! {
        closed = watch(stores, &app_id, message_id, retention, interval, take) => Ok(closed),
        () = stop.cancelled() => Err("stopped by a signal".to_owned()),
        timeout = elapsed(timeout) => Err(format!("not closed within {timeout:?}")),
    };
    bar.finish_and_clear();
    match end {
        Ok(closed) => {
            let report = closed?;
            out.result(text(&report), &report)
        }
        Err(why) => {
            let state = display.state.map_or("not begun by any worker", MessageState::name);
            bail!("{why}: message {message_id} is {state}, and goes on unwatched")
        }
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

/// Shows events on a progress bar, or each change as a line.
struct Display {
    out: Output,
    /// Hidden without a terminal.
    bar: ProgressBar,
    /// The state at the last poll.
    state: Option<MessageState>,
    /// True once the wait for a worker was printed.
    noted: bool,
}

impl Display {
    fn show(&mut self, event: WatchEvent, app: &AppId, message: MessageId) -> anyhow::Result<()> {
        match event {
            WatchEvent::NotBegun => {
                let wait = format!("waiting: no worker has begun {message} of {app} yet");
                if !self.bar.is_hidden() {
                    self.bar.set_message(wait);
                    self.bar.tick();
                } else if !self.noted {
                    self.out.note(wait);
                    self.noted = true;
                }
            }
            WatchEvent::IndexAway(text) => self.bar.suspend(|| self.out.note(text)),
            WatchEvent::IndexBack => {
                self.bar.suspend(|| self.out.note("the index answers again"));
            }
            WatchEvent::Update(update) => {
                self.state = Some(update.report.state);
                return self.update(&update);
            }
        }
        Ok(())
    }

    fn update(&self, update: &MessageUpdate) -> anyhow::Result<()> {
        if self.bar.is_hidden() {
            return match update.changed {
                true => self.out.result(line(update), update),
                false => Ok(()),
            };
        }
        if let Some(progress) = update.progress {
            if self.bar.length().is_none()
                && let Ok(style) = ProgressStyle::with_template("{bar:30} {wide_msg}")
            {
                self.bar.set_style(style);
            }
            self.bar.set_length(progress.total);
            self.bar.set_position(progress.done);
        }
        self.bar.set_message(line(update));
        self.bar.tick();
        Ok(())
    }
}

/// Formats the progress in one line.
fn line(update: &MessageUpdate) -> String {
    let MessageUpdate { report, progress, devices_per_second, pace, seconds_left, .. } = update;
    let outcomes = &report.outcomes;
    let mut parts = vec![report.state.name().to_owned()];
    if let Some(progress) = progress {
        // Rounded down: 100% only at the end of the audience.
        parts.push(format!("{}%", (progress.share() * 100.0).floor()));
    }
    parts.push(format!("done {} of {} targeted", outcomes.total(), report.targeted));
    let failed = outcomes.failed.values().sum();
    let counts =
        [("failed", failed), ("expired", outcomes.expired), ("recalled", outcomes.recalled)];
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    parts.extend(counts.map(|(what, count)| format!("{what} {count}")));
    if let Some(devices) = devices_per_second {
        let pace = pace.map_or_else(String::new, |pace| format!(" (pace {pace}/s)"));
        parts.push(format!("{devices:.0}/s{pace}"));
    }
    if let Some(left) = seconds_left.and_then(|left| Duration::try_from_secs_f64(left).ok()) {
        parts.push(format!("{} left", HumanDuration(left)));
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use push_model::{
        ledger::{FailReason, Outcomes},
        progress::Progress,
        report::Report,
        time::UnixMillis,
    };

    use super::*;

    fn update(pace: Option<NonZeroU32>) -> MessageUpdate {
        let app_id: AppId = "a".parse().unwrap();
        let mut outcomes = Outcomes { sent: 598, ..Outcomes::default() };
        outcomes.failed.insert(FailReason::Gone, 1);
        let report = Report {
            message_id: MessageId::issue_named(&app_id),
            app_id,
            state: MessageState::Sending,
            accepted_at: UnixMillis(0),
            expires_at: None,
            recalled_at: None,
            targeted: 599,
            outcomes,
            pending: 0,
            retried: Default::default(),
        };
        MessageUpdate {
            report,
            progress: Some(Progress { done: 599, total: 1000 }),
            devices_per_second: Some(1000.0),
            pace,
            seconds_left: Some(0.401),
            changed: true,
        }
    }

    #[test]
    fn a_line_tells_state_share_counts_rate_and_time_left() {
        assert_eq!(
            line(&update(None)),
            "sending  59%  done 599 of 599 targeted  failed 1  1000/s  0 seconds left"
        );
    }

    #[test]
    fn a_line_tells_the_pace_of_the_app_beside_the_rate() {
        let paced = line(&update(NonZeroU32::new(1200)));
        assert!(paced.contains("  1000/s (pace 1200/s)  "), "{paced}");
    }

    #[test]
    fn polling_without_a_pause_is_refused() {
        assert_eq!(interval("0s"), Err("must be at least 50ms".to_owned()));
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
    }
}
