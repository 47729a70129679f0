//! `pushctl message`: what became of a message.

use anyhow::{Context as _, bail};
use clap::Subcommand;
use push_shared::{
    ids::{AppId, MessageId},
    index::Index,
    ledger::{Entry, RecallOutcome},
    time::UnixMillis,
};
use serde_json::json;

use crate::output::Output;

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
    /// Stop sending it
    Recall {
        /// The app
        app_id: AppId,
        /// The message
        message_id: MessageId,
    },
}

/// Runs the command.
///
/// # Errors
/// If there is no such message, or the index did not answer.
pub async fn run(command: MessageCommand, index: &dyn Index, out: Output) -> anyhow::Result<()> {
    match command {
        MessageCommand::Show { app_id, message_id } => {
            let entry = index.entry(&app_id, &message_id).await?.with_context(|| {
                format!("{app_id} has no message {message_id}, or no worker has taken it yet")
            })?;
            out.result(text(&entry), &describe(&entry))
        }
        MessageCommand::Recall { app_id, message_id } => {
            match index.recall(&app_id, &message_id, UnixMillis::now()).await? {
                RecallOutcome::Recalled(entry) => out.result(text(&entry), &describe(&entry)),
                RecallOutcome::AlreadyClosed(entry) => {
                    out.note("nothing was left to recall");
                    out.result(text(&entry), &describe(&entry))
                }
                RecallOutcome::Unknown => bail!("{app_id} has no message {message_id}"),
            }
        }
    }
}

fn text(entry: &Entry) -> String {
    let mut lines = vec![
        format!("message   {}", entry.message_id),
        format!("state     {}", json!(entry.state()).as_str().unwrap_or_default()),
        format!("accepted  {}", entry.accepted_at),
        format!("expires   {}", entry.expires_at),
        format!("targeted  {}", entry.targeted),
        format!("sent      {}", entry.outcomes.sent),
    ];
    for (reason, count) in &entry.outcomes.failed {
        lines.push(format!("failed    {count}  {}", reason.name()));
    }
    lines.push(format!("expired   {}", entry.outcomes.expired));
    lines.push(format!("recalled  {}", entry.outcomes.recalled));
    lines.push(format!("pending   {}", entry.pending()));
    lines.join("\n")
}

fn describe(entry: &Entry) -> serde_json::Value {
    json!({
        "message_id": entry.message_id,
        "app_id": entry.app_id,
        "state": entry.state(),
        "accepted_at": entry.accepted_at,
        "expires_at": entry.expires_at,
        "targeted": entry.targeted,
        "sent": entry.outcomes.sent,
        "failed": entry.outcomes.failed,
        "expired": entry.outcomes.expired,
        "recalled": entry.outcomes.recalled,
        "pending": entry.pending(),
    })
}
