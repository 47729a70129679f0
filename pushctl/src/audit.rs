//! `pushctl audit`: lists the audit trail.

use std::num::NonZeroUsize;

use clap::Subcommand;
use push_index::Index;
use push_model::ids::AppId;
use push_operator::audit;

use crate::output::{Output, Table};

/// Commands on the audit trail.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List what was done with pushctl, the newest first: when, by whom, to which app
    List {
        /// Only what was done to this app
        #[arg(long, value_name = "APP_ID")]
        app: Option<AppId>,
        /// The most to list
        #[arg(long, value_name = "N", default_value = "100")]
        limit: NonZeroUsize,
    },
}

/// Runs the command.
///
/// # Errors
/// If the index did not answer.
pub async fn run(command: AuditCommand, index: &dyn Index, out: Output) -> anyhow::Result<()> {
    let AuditCommand::List { app, limit } = command;
    let events = audit::list(index, app.as_ref(), limit.get()).await?;
    let mut table = Table::new(&["AT", "ACTION", "DONE", "APP", "SUBJECT", "USER", "HOST", "BY"])
        .without_first(&["BY", "HOST", "USER", "SUBJECT"]);
    for event in &events {
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let message = event.message.as_ref().map(ToString::to_string);
        table.row([
            event.at.to_string(),
            event.action.clone(),
            if event.done { "yes" } else { "no" }.to_owned(),
            known(&event.app.as_ref().map(ToString::to_string)),
            known(&event.secret.clone().or(message)),
            known(&event.user),
            known(&event.host),
            event.program.clone(),
        ]);
    }
    out.result(if events.is_empty() { "no events".to_owned() } else { table.to_string() }, &events)
}
