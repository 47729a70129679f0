//! `pushctl message`: shows, watches and recalls messages.

mod watch;

use std::num::NonZeroU32;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use push_boot::engines::Stores;
use push_index::{Index, IndexError, horizon, recall_everywhere};
use push_model::{
    app::AppKey,
    audit::{Action, AuditEvent},
    ids::{AppId, MessageId},
    ledger::{MessageState, Outcomes, RecallOutcome, Retention},
    report::Report,
    time::UnixMillis,
};

use self::watch::WatchArgs;
use crate::{audit, output::Output};

/// What to do with a message.
#[derive(Debug, Subcommand)]
pub enum MessageCommand {
    /// Show its ledger: how many devices are targeted, sent, failed, expired, recalled, pending
    Show {
        /// The app
        app_id: AppId,
        /// The message
        message_id: MessageId,
    },
    /// Show live how it goes, until it is closed; then show its ledger
    ///
    /// With --json, every change is one line, and the last line is what `show` prints.
    Watch(WatchArgs),
    /// Stop sending it
    Recall {
        /// The app
        app_id: AppId,
        /// The message
        message_id: MessageId,
    },
}

/// Runs the command. `retention` is how long the index keeps the ledger of a message.
///
/// # Errors
/// If there is no such message, or the index did not answer.
pub async fn run(
    command: MessageCommand,
    stores: &Stores,
    retention: Retention,
    out: Output,
) -> anyhow::Result<()> {
    let Stores { index, ledger, .. } = stores;
    let (index, ledger) = (&**index, &**ledger);
    let now = UnixMillis::now();
    match command {
        MessageCommand::Show { app_id, message_id } => {
            let app = key(index, &app_id).await?;
            let report = match ledger.entry(&app, &message_id).await? {
                Some(entry) => Some(Report::of(&entry, now)),
                None => {
                    let horizon = horizon(ledger, &app, &message_id, retention).await?;
                    Report::of_waiting(&app, &message_id, now, horizon)
                }
            };
            let report = report.with_context(|| format!("{app_id} has no message {message_id}"))?;
            let mut text = text(&report);
            // While it is sent, the pace may be why it takes long.
            if matches!(report.state, MessageState::Accepted | MessageState::Sending)
                && let Some(pace) = pace(index, &app_id).await?
            {
                text.push_str(&format!("\npace      {pace} devices a second, the app's"));
            }
            out.result(text, &report)
        }
        MessageCommand::Watch(args) => watch::run(args, stores, retention, out).await,
        MessageCommand::Recall { app_id, message_id } => {
            let event = AuditEvent {
                app: Some(app_id.clone()),
                message: Some(message_id),
                ..audit::event(Action::MessageRecalled)
            };
            let recall = async {
                let app = key(index, &app_id).await?;
                match recall_everywhere(ledger, &app, &message_id, now, retention).await? {
                    RecallOutcome::Recalled(entry) => Ok((true, entry)),
                    RecallOutcome::AlreadyClosed(entry) => Ok((false, entry)),
                    RecallOutcome::Unknown => bail!("{app_id} has no message {message_id}"),
                }
            };
            let recalled = |(recalled, _): &(bool, _)| *recalled;
            let (recalled, entry) =
                audit::recorded_if(Some(index), event, recall, recalled).await?;
            if !recalled {
                out.note("nothing was left to recall");
            }
            let report = Report::of(&entry, now);
            out.result(text(&report), &report)
        }
    }
}

/// The key of the app with this name, or of the last one that had it.
async fn key(index: &dyn Index, app_id: &AppId) -> Result<AppKey, IndexError> {
    if let Some(app) = index.app(app_id).await? {
        return Ok(AppKey::from(&app));
    }
    let generation = index.removed_apps(app_id).await?.saturating_sub(1);
    Ok(AppKey { id: app_id.clone(), generation })
}

/// The pace of an app, if it has one.
async fn pace(index: &dyn Index, app_id: &AppId) -> Result<Option<NonZeroU32>, IndexError> {
    Ok(index.app(app_id).await?.and_then(|app| app.pace))
}

fn text(report: &Report) -> String {
    let mut lines = vec![
        format!("message   {}", report.message_id),
        format!("state     {}", report.state.name()),
        format!("accepted  {}", report.accepted_at),
    ];
    let times = [("expires ", report.expires_at), ("recalled", report.recalled_at)];
    lines.extend(times.iter().filter_map(|(name, at)| Some(format!("{name}  {}", (*at)?))));
    let Outcomes { sent, failed, expired, recalled } = &report.outcomes;
    lines.push(format!("targeted  {}", report.targeted));
    lines.push(format!("sent      {sent}"));
    lines.extend(
        failed.iter().map(|(reason, count)| format!("failed    {count}  {}", reason.name())),
    );
    lines.push(format!("expired   {expired}"));
    lines.push(format!("recalled  {recalled}"));
    lines.push(format!("pending   {}", report.pending));
    let retried = report.retried.iter();
    lines.extend(retried.map(|(reason, count)| format!("retried   {count}  {}", reason.name())));
    lines.join("\n")
}
