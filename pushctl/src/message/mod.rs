//! `pushctl message`: shows, watches and recalls messages.

mod watch;

use clap::Subcommand;
use push_boot::engines::Stores;
use push_model::{
    ids::{AppId, MessageId},
    ledger::{Outcomes, Retention},
    report::Report,
};
use push_operator::{audit::Actor, message};

use self::watch::WatchArgs;
use crate::output::Output;

/// Commands on a message.
#[derive(Debug, Subcommand)]
pub enum MessageCommand {
    /// Show its ledger: the number of devices targeted, sent, failed, expired, recalled, pending
    Show {
        /// The app
        app_id: AppId,
        /// The message
        message_id: MessageId,
    },
    /// Follow its progress until it is closed; then show its ledger
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

/// Runs the command. `retention` is the time for which the index keeps the ledger of a message.
///
/// # Errors
/// If there is no such message, the index did not answer, or a recall could not be recorded.
pub async fn run(
    command: MessageCommand,
    stores: &Stores,
    retention: Retention,
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        MessageCommand::Show { app_id, message_id } => {
            let view = message::show(stores, &app_id, &message_id, retention).await?;
            let mut text = text(&view.report);
            if let Some(pace) = view.pace {
                text.push_str(&format!("\npace      {pace} devices a second, the app's"));
            }
            out.result(text, &view)
        }
        MessageCommand::Watch(args) => watch::run(args, stores, retention, out).await,
        MessageCommand::Recall { app_id, message_id } => {
            let done = message::recall(stores, actor, &app_id, message_id, retention).await?;
            if !done.recalled {
                out.note("nothing was left to recall");
            }
            out.result(text(&done.report), &done)
        }
    }
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
