//! `pushctl message`: lists, shows, watches and recalls messages, in the stores or through a server.

mod watch;

use anyhow::ensure;
use clap::Subcommand;
use push_boot::{engines::Stores, terminal};
use push_model::{
    ids::{AppId, MessageId},
    ledger::{MessageState, Outcomes, Retention},
    report::{Report, ReportPage},
};
use push_operator::{
    audit::Actor,
    client::Client,
    message::{self, Recalled, remote},
};
use serde_json::Value;

use self::watch::WatchArgs;
pub(crate) use self::watch::{Following, follow};
use crate::{
    output::{Output, Table},
    server::ServerArgs,
};

/// Commands on a message.
#[derive(Debug, Subcommand)]
pub enum MessageCommand {
    /// List the messages of an app that a worker has begun, the newest first
    List(ListArgs),
    /// Show its ledger: the number of devices targeted, sent, failed, expired, recalled, pending
    Show(MessageArgs),
    /// Follow its progress until it is closed; then show its ledger
    ///
    /// With --json, every change is one line, and the last line is what `show` prints.
    Watch(WatchArgs),
    /// Stop sending it
    Recall(MessageArgs),
}

/// Some messages of an app, and the server to ask.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
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
    #[command(flatten)]
    server: ServerArgs,
}

/// A message, and the server to ask.
#[derive(Debug, clap::Args)]
pub struct MessageArgs {
    /// The app
    app_id: AppId,
    /// The message
    message_id: MessageId,
    #[command(flatten)]
    server: ServerArgs,
}

/// The place where messages are kept.
#[derive(Debug)]
pub enum Source {
    /// The stores, and how long they keep ledgers.
    Stores(Stores, Retention),
    /// A server, through its HTTP endpoint.
    Server(Client),
}

impl MessageCommand {
    /// Returns the app.
    pub(crate) fn app_id(&self) -> &AppId {
        match self {
            Self::List(args) => &args.app_id,
            Self::Show(args) | Self::Recall(args) => &args.app_id,
            Self::Watch(args) => &args.message().app_id,
        }
    }

    /// Returns the flags about the server.
    pub(crate) fn server(&self) -> &ServerArgs {
        match self {
            Self::List(args) => &args.server,
            Self::Show(args) | Self::Recall(args) => &args.server,
            Self::Watch(args) => &args.message().server,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// If there is no such message, the source did not answer, or a recall could not be recorded.
pub async fn run(
    command: MessageCommand,
    source: &Source,
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        MessageCommand::List(ListArgs { app_id, state, limit, cursor, .. }) => {
            let (limit, cursor) = (usize::try_from(limit)?, cursor.as_deref());
            let page = match source {
                Source::Server(client) => remote::list(client, limit, cursor, state).await?,
                Source::Stores(stores, _) => {
                    message::list(stores, &app_id, limit, cursor, state).await?
                }
            };
            print_list(&page, out)
        }
        MessageCommand::Show(MessageArgs { app_id, message_id, .. }) => match source {
            Source::Server(client) => {
                let report = remote::show(client, &message_id).await?;
                out.result(text(&report), &report)
            }
            Source::Stores(stores, retention) => {
                let view = message::show(stores, &app_id, &message_id, *retention).await?;
                let mut text = text(&view.report);
                if let Some(pace) = view.pace {
                    text.push_str(&format!("\npace      {pace} devices a second, the app's"));
                }
                out.result(text, &view)
            }
        },
        MessageCommand::Watch(args) => {
            let (app_id, following) = args.into_parts();
            follow(following, &app_id, source, out).await
        }
        MessageCommand::Recall(MessageArgs { app_id, message_id, .. }) => {
            let done = match source {
                Source::Server(client) => {
                    Recalled { report: remote::recall(client, &message_id).await?, recalled: true }
                }
                Source::Stores(stores, retention) => {
                    message::recall(stores, actor, &app_id, message_id, *retention).await?
                }
            };
            if !done.recalled {
                out.note("nothing was left to recall");
            }
            out.result(text(&done.report), &done)
        }
    }
}

/// Fails if a closed message reached none of its devices.
fn check_reached(report: &Report) -> anyhow::Result<()> {
    let lost = report.outcomes.failed.values().sum::<u64>() + report.outcomes.expired;
    ensure!(
        report.outcomes.sent > 0 || lost == 0,
        "message {} reached none of its {} devices",
        report.message_id,
        report.targeted
    );
    Ok(())
}

fn state(text: &str) -> Result<MessageState, String> {
    MessageState::of_name(text).ok_or_else(|| {
        format!("must be one of {}", MessageState::ALL.map(MessageState::name).join(", "))
    })
}

fn print_list(page: &ReportPage, out: Output) -> anyhow::Result<()> {
    if let Some(cursor) = page.next_cursor.as_ref().filter(|_| !out.json) {
        out.note(format_args!("there are more: --cursor {cursor}"));
    }
    let text = match page.messages.is_empty() {
        true => "no messages".to_owned(),
        false => table(&page.messages).to_string(),
    };
    out.result(text, page)
}

fn table(messages: &[Report]) -> Table {
    let mut table = Table::new(&[
        "MESSAGE", "ACCEPTED", "TARGETED", "SENT", "FAILED", "EXPIRED", "STATE", "SENT BY", "TITLE",
    ])
    .without_first(&["ACCEPTED", "EXPIRED", "SENT BY", "TARGETED", "FAILED", "TITLE", "SENT"]);
    for report in messages {
        let Outcomes { sent, failed, expired, .. } = &report.outcomes;
        table.row([
            report.message_id.to_string(),
            report.accepted_at.to_string(),
            report.targeted.to_string(),
            sent.to_string(),
            failed.values().sum::<u64>().to_string(),
            expired.to_string(),
            report.state.name().to_owned(),
            report.sent_by.clone().unwrap_or_default(),
            report.title.clone().unwrap_or_default(),
        ]);
    }
    table
}

/// The lines about the sender and the content of a broadcast, in which no text can end its line.
fn of_broadcast(report: &Report) -> impl Iterator<Item = String> {
    let Report { sent_by, title, content, content_omitted, .. } = report;
    let omitted = content_omitted.as_ref().map(|why| format!("omitted: {why}"));
    let content = content.as_ref().map(Value::to_string).or(omitted);
    let named = [("sent by ", sent_by.clone()), ("title   ", title.clone()), ("content ", content)];
    named.into_iter().filter_map(|(name, text)| Some(format!("{name}  {}", terminal::line(&text?))))
}

fn text(report: &Report) -> String {
    let mut lines = vec![
        format!("message   {}", report.message_id),
        format!("state     {}", report.state.name()),
        format!("accepted  {}", report.accepted_at),
    ];
    let times = [("expires ", report.expires_at), ("recalled", report.recalled_at)];
    lines.extend(times.iter().filter_map(|(name, at)| Some(format!("{name}  {}", (*at)?))));
    lines.extend(of_broadcast(report));
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
