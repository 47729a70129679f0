//! `pushctl message watch`: follows a message until it is closed, for `--timeout` at most. It only
//! reads, so it can be stopped at any time.

use std::time::Duration;

use anyhow::bail;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use push_boot::{settings::duration, shutdown};
use push_model::{
    ids::{AppId, MessageId},
    ledger::MessageState,
};
use push_operator::message::{MessageUpdate, WatchEvent, remote, watch};
use tokio::time::sleep;

use super::{MessageArgs, Source, check_reached, text};
use crate::output::Output;

/// The shortest polling interval. Polling more often loads the index and shows nothing more.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// The space between the parts of a line.
const GAP: &str = "  ";
/// The columns of a progress bar that is left beside the line.
const BAR: usize = 12;
/// The interval between two looks of a `push --watch`.
const INTERVAL: Duration = Duration::from_millis(500);

/// Flags of `message watch`.
#[derive(Debug, clap::Args)]
pub struct WatchArgs {
    /// Read the ledger once per this time
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = interval)]
    interval: Duration,
    /// Fail if the message is not closed by then; without it, wait as long as it takes
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    // Behind the others, because its heading holds for what follows.
    #[command(flatten)]
    message: MessageArgs,
}

impl WatchArgs {
    pub(super) fn message(&self) -> &MessageArgs {
        &self.message
    }

    pub(super) fn into_parts(self) -> (AppId, Following) {
        let Self { message: MessageArgs { app_id, message_id, .. }, interval, timeout } = self;
        (app_id, Following { message_id, accepted: false, interval, timeout })
    }
}

/// The message to follow, and how.
#[derive(Debug)]
pub(crate) struct Following {
    message_id: MessageId,
    /// True if the server has just accepted it.
    accepted: bool,
    interval: Duration,
    timeout: Option<Duration>,
}

impl Following {
    /// Follows a message that the server has just accepted.
    pub(crate) fn accepted(message_id: MessageId) -> Self {
        Self { message_id, accepted: true, interval: INTERVAL, timeout: None }
    }
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
/// If there is no such message, it reached no device, the source is unavailable for too long, or
/// `--timeout` or Ctrl-C ends the command before the message is closed.
pub(crate) async fn follow(
    following: Following,
    app_id: &AppId,
    source: &Source,
    out: Output,
) -> anyhow::Result<()> {
    let Following { message_id, accepted, interval, timeout } = following;
    let stop = shutdown::on_signal();
    let bar = out.progress(None, "{spinner} {wide_msg}");
    let mut display = Display { out, bar: bar.clone(), state: None, noted: false };
    let take = |event| display.show(event, app_id, message_id);
    let watching = async {
        match source {
            Source::Server(client) => {
                remote::watch(client, &message_id, accepted, interval, take).await
            }
            Source::Stores(stores, retention) => {
                watch(stores, app_id, message_id, *retention, interval, take).await
            }
        }
    };
    let end = tokio::select! {
        closed = watching => Ok(closed),
        () = stop.cancelled() => Err("stopped by a signal".to_owned()),
        timeout = elapsed(timeout) => Err(format!("not closed within {timeout:?}")),
    };
    bar.finish_and_clear();
    match end {
        Ok(closed) => {
            let report = closed?;
            out.result(text(&report), &report)?;
            if report.state == MessageState::Done && report.targeted == 0 {
                out.note("no device matched");
            }
            check_reached(&report)
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
            WatchEvent::Away(text) => self.bar.suspend(|| self.out.note(text)),
            WatchEvent::Back(source) => {
                self.bar.suspend(|| self.out.note(format_args!("{source} answers again")));
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
                true => self.out.result(line(update, usize::MAX), update),
                false => Ok(()),
            };
        }
        if let Some(progress) = update.progress {
            if self.bar.length().is_none()
                && let Ok(style) = ProgressStyle::with_template("{wide_bar} {msg}")
            {
                self.bar.set_style(style);
            }
            self.bar.set_length(progress.total);
            self.bar.set_position(progress.done);
        }
        let columns = self.out.columns().unwrap_or(usize::MAX);
        self.bar.set_message(line(update, columns.saturating_sub(BAR)));
        self.bar.tick();
        Ok(())
    }
}

/// Formats the progress in one line of at most `columns`, as far as the state and the share fit: what
/// tells least about the time that is left is dropped first.
fn line(update: &MessageUpdate, columns: usize) -> String {
    let MessageUpdate { report, progress, devices_per_second, pace, seconds_left, .. } = update;
    let outcomes = &report.outcomes;
    // Each with its rank: the part with the highest is dropped first.
    let mut parts = vec![(0, report.state.name().to_owned())];
    if let Some(progress) = progress {
        // Rounded down: 100% only at the end of the audience.
        parts.push((1, format!("{}%", (progress.share() * 100.0).floor())));
    }
    parts.push((5, format!("done {} of {} targeted", outcomes.total(), report.targeted)));
    let failed = outcomes.failed.values().sum();
    let counts = [
        (4, "failed", failed),
        (6, "expired", outcomes.expired),
        (6, "recalled", outcomes.recalled),
    ];
    let counts = counts.iter().filter(|(.., count)| *count > 0);
    parts.extend(counts.map(|(rank, what, count)| (*rank, format!("{what} {count}"))));
    if let Some(devices) = devices_per_second {
        parts.push((3, format!("{devices:.0}/s")));
        parts.extend(pace.map(|pace| (7, format!("(pace {pace}/s)"))));
    }
    if let Some(left) = seconds_left.and_then(|left| Duration::try_from_secs_f64(left).ok()) {
        parts.push((2, format!("{} left", HumanDuration(left))));
    }
    let width = |parts: &[(u8, String)]| {
        parts.iter().map(|(_, part)| part.chars().count() + GAP.len()).sum::<usize>() - GAP.len()
    };
    while width(&parts) > columns
        && let Some(last) = parts.iter().map(|(rank, _)| *rank).max().filter(|rank| *rank > 1)
    {
        parts.retain(|(rank, _)| *rank != last);
    }
    parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(GAP)
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
            sent_by: None,
            title: None,
            content: None,
            content_omitted: None,
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
            line(&update(None), usize::MAX),
            "sending  59%  done 599 of 599 targeted  failed 1  1000/s  0 seconds left"
        );
    }

    #[test]
    fn a_line_tells_the_pace_of_the_app_beside_the_rate() {
        let paced = line(&update(NonZeroU32::new(1200)), usize::MAX);
        assert!(paced.contains("  1000/s  (pace 1200/s)  "), "{paced}");
    }

    #[test]
    fn a_narrow_line_keeps_share_rate_and_time_left_before_the_counts() {
        let paced = update(NonZeroU32::new(1200));
        assert_eq!(line(&paced, 50), "sending  59%  failed 1  1000/s  0 seconds left");
        assert_eq!(line(&paced, 40), "sending  59%  1000/s  0 seconds left");
        assert_eq!(line(&paced, 30), "sending  59%  0 seconds left");
        assert_eq!(line(&paced, 1), "sending  59%");
        for columns in 12..120 {
            assert!(line(&paced, columns).len() <= columns, "{columns}");
        }
    }

    #[test]
    fn polling_without_a_pause_is_refused() {
        assert_eq!(interval("0s"), Err("must be at least 50ms".to_owned()));
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
    }
}
