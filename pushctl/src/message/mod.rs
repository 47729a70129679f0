//! `pushctl message`: lists, shows, watches and recalls messages.

mod watch;

use clap::Subcommand;
use push_boot::engines::Stores;
use push_model::{
    ids::{AppId, MessageId},
    ledger::{MessageState, Outcomes, Retention},
    report::{Report, ReportPage},
};
use push_operator::{audit::Actor, message};

use self::watch::WatchArgs;
use crate::output::{Output, Table};

/// Commands on a message.
#[derive(Debug, Subcommand)]
pub enum MessageCommand {
    /// List the messages of an app that a worker has begun, the newest first
    List {
        /// The app
        app_id: AppId,
        /// Only messages in this state: accepted, sending, done, recalled or expired
        #[arg(long, value_name = "STATE", value_parser = state)]
        state: Option<MessageState>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50,
            value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        /// Go on behind the page that ended with this cursor
        #[arg(long)]
        cursor: Option<String>,
    },
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
        MessageCommand::List { app_id, state, limit, cursor } => {
            let limit = usize::try_from(limit)?;
            let page = message::list(stores, &app_id, limit, cursor.as_deref(), state).await?;
            print_list(&page, out)
        }
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

fn state(text: &str) -> Result<MessageState, String> {
    MessageState::of_name(text).ok_or_else(|| {
        format!("must be one of {}", MessageState::ALL.map(MessageState::name).join(", "))
    })
}

fn print_list(page: &ReportPage, out: Output) -> anyhow::Result<()> {
    let mut table =
        Table::new(&["ACCEPTED", "STATE", "TARGETED", "SENT", "FAILED", "EXPIRED", "MESSAGE"]);
    for report in &page.messages {
        let Outcomes { sent, failed, expired, .. } = &report.outcomes;
        table.row([
            report.accepted_at.to_string(),
            report.state.name().to_owned(),
            report.targeted.to_string(),
            sent.to_string(),
            failed.values().sum::<u64>().to_string(),
            expired.to_string(),
            report.message_id.to_string(),
        ]);
    }
    if let Some(cursor) = page.next_cursor.as_ref().filter(|_| !out.json) {
        out.note(format_args!("there are more: --cursor {cursor}"));
    }
    let text = if page.messages.is_empty() { "no messages".to_owned() } else { table.to_string() };
    out.result(text, page)
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
