//! The audit trail in the index: who changed what. Every event is also written to the log, which holds
//! those of commands that run without an index.

use anyhow::bail;
use push_boot::audit::{self, event_of_user};
use push_index::Index;
use push_model::{
    audit::{AUDIT_EVENTS, Action, AuditEvent},
    ids::AppId,
    time::UnixMillis,
};
use push_store::IndexError;

/// The author of changes: a program, and the user who runs it or calls it.
#[derive(Debug, Clone)]
pub struct Actor {
    /// An event that names the actor; its action is replaced.
    template: AuditEvent,
}

impl Actor {
    /// The user of the operating system who runs this program.
    pub fn of_process(program: &str) -> Self {
        Self { template: event_of_user(program, Action::AppChanged) }
    }

    /// An event of this actor.
    pub fn event(&self, action: Action) -> AuditEvent {
        AuditEvent { action: action.name().to_owned(), ..self.template.clone() }
    }

    /// An event of this actor about an app.
    pub fn event_of_app(&self, action: Action, app: &AppId) -> AuditEvent {
        AuditEvent { app: Some(app.clone()), ..self.event(action) }
    }
}

/// Lists at most `limit` events, the newest first: all of them, or those of one app.
///
/// # Errors
/// If the index did not answer.
pub async fn list(
    index: &dyn Index,
    app: Option<&AppId>,
    limit: usize,
) -> Result<Vec<AuditEvent>, IndexError> {
    let mut events = index.audit(if app.is_some() { AUDIT_EVENTS } else { limit }).await?;
    events.retain(|event| app.is_none() || event.app.as_ref() == app);
    events.truncate(limit);
    Ok(events)
}

/// Does something, and appends to the trail whether it was done. If the trail cannot be written,
/// the change stays, but the call fails, so that its caller learns of it. Without an index it is
/// written to the log alone.
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

/// Does the same for work that can succeed without having changed anything.
///
/// # Errors
/// If it was not done, or not recorded.
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
pub(crate) async fn append(
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
