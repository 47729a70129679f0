//! `pushctl message`: shows, watches and recalls messages, in the stores or through a server.

mod watch;

use anyhow::ensure;
use clap::Subcommand;
use push_boot::engines::Stores;
use push_model::{
    ids::{AppId, MessageId},
    ledger::{Outcomes, Retention},
    report::Report,
};
use push_operator::{
    audit::Actor,
    client::Client,
    message::{self, Recalled, remote},
};

use self::watch::WatchArgs;
pub(crate) use self::watch::{Following, follow};
use crate::{output::Output, server::ServerArgs};

/// Commands on a message.
#[derive(Debug, Subcommand)]
pub enum MessageCommand {
    /// Show its ledger: the number of devices targeted, sent, failed, expired, recalled, pending
    Show(MessageArgs),
    /// Follow its progress until it is closed; then show its ledger
    ///
    /// With --json, every change is one line, and the last line is what `show` prints.
    Watch(WatchArgs),
    /// Stop sending it
    Recall(MessageArgs),
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
    fn args(&self) -> &MessageArgs {
        match self {
            Self::Show(args) | Self::Recall(args) => args,
            Self::Watch(args) => args.message(),
        }
    }

    /// Returns the app.
    pub(crate) fn app_id(&self) -> &AppId {
        &self.args().app_id
    }

    /// Returns the flags about the server.
    pub(crate) fn server(&self) -> &ServerArgs {
        &self.args().server
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
