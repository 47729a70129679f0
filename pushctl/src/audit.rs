//! The audit trail: what `pushctl` did is appended to it in the index, and `pushctl audit` lists it.
//! It is written to the log as well, which commands show that can work without an index.

use std::num::NonZeroUsize;

use anyhow::bail;
use clap::Subcommand;
use push_boot::audit::{self, event_of_user};
use push_index::{Index, IndexError};
use push_model::{
    audit::{AUDIT_EVENTS, Action, AuditEvent},
    ids::AppId,
    time::UnixMillis,
};

use crate::output::{Output, Table};

/// What to do with the audit trail.
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
    let limit = limit.get();
    let mut events = index.audit(if app.is_some() { AUDIT_EVENTS } else { limit }).await?;
    events.retain(|event| app.is_none() || event.app == app);
    events.truncate(limit);
    let mut table = Table::new(&["AT", "ACTION", "DONE", "APP", "SUBJECT", "USER", "HOST", "BY"]);
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

/// An event of this process, for [`recorded`].
pub fn event(action: Action) -> AuditEvent {
    event_of_user("pushctl", action)
}

/// Does something, and appends to the trail whether it was done. What was done is not undone if the
/// trail cannot be written, but the command fails then, so that its caller learns of it. Without an
/// index it is written to the log alone.
///
/// # Errors
/// If it was not done, or not recorded.
pub async fn recorded<T>(
    index: Option<&dyn Index>,
    event: AuditEvent,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    recorded_if(index, event, work, |_| true).await
}

/// As [`recorded`], for work that can end well without having done anything.
///
/// # Errors
/// As [`recorded`].
pub async fn recorded_if<T>(
    index: Option<&dyn Index>,
    event: AuditEvent,
    work: impl Future<Output = anyhow::Result<T>>,
    was_done: impl FnOnce(&T) -> bool,
) -> anyhow::Result<T> {
    let result = work.await;
    let done = result.as_ref().is_ok_and(was_done);
    match (append(index, event, done).await, &result) {
        (Err(error), Ok(_)) => bail!("it was done, but not recorded in the audit trail: {error}"),
        _ => result,
    }
}

/// Appends to the trail whether something was done.
///
/// # Errors
/// If it was not recorded.
pub async fn append(
    index: Option<&dyn Index>,
    event: AuditEvent,
    done: bool,
) -> Result<(), IndexError> {
    let event = AuditEvent { at: UnixMillis::now(), done, ..event };
    if done {
        audit::log(&event);
    }
    match index {
        Some(index) => index.append_audit(&event, AUDIT_EVENTS).await,
        None => Ok(()),
    }
}
