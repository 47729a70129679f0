//! Messages: their ledgers, watching and recalling them.
//!
//! - `watch`: follows a message until its entry is closed
//! - `remote`: the same through an HTTP endpoint
//! - `list`: the messages of an app
//! - `rate`: estimates devices a second and the time left

mod list;
pub mod rate;
pub mod remote;
mod watch;

use std::num::NonZeroU32;

use anyhow::bail;
use push_boot::engines::Stores;
use push_index::Index;
use push_ledger::{horizon, recall_everywhere};
use push_model::{
    app::AppKey,
    audit::{Action, AuditEvent},
    ids::{AppId, MessageId},
    ledger::{MessageState, RecallOutcome, Retention},
    report::Report,
    time::UnixMillis,
};
use push_store::IndexError;
use serde::Serialize;

pub use self::list::list;
pub use self::watch::{MessageUpdate, WatchEvent, watch};
use crate::{
    app::AppRef,
    audit::{Actor, recorded_if},
    refusal::Refusal,
};

/// The ledger of a message. It serialises as the report.
#[derive(Debug, Clone, Serialize)]
pub struct MessageView {
    /// The report.
    #[serde(flatten)]
    pub report: Report,
    /// The pace of the app while the message is sent, which may be why that takes long.
    #[serde(skip)]
    pub pace: Option<NonZeroU32>,
}

/// A message after its recall. It serialises as the report.
#[derive(Debug, Clone, Serialize)]
pub struct Recalled {
    /// The report.
    #[serde(flatten)]
    pub report: Report,
    /// False if nothing was left to recall.
    #[serde(skip)]
    pub recalled: bool,
}

/// Shows the ledger of a message. `retention` is how long the index keeps ledgers.
///
/// # Errors
/// If there is no such message, or the index did not answer.
pub async fn show(
    stores: &Stores,
    app_id: &AppId,
    message_id: &MessageId,
    retention: Retention,
) -> anyhow::Result<MessageView> {
    let (now, index, ledger) = (UnixMillis::now(), &*stores.index, &*stores.ledger);
    let app = key(index, app_id).await?;
    let report = match ledger.entry(&app, message_id).await? {
        Some(entry) => Some(Report::of(&entry, now)),
        None => {
            check_here(index, app_id).await?;
            let horizon = horizon(ledger, &app, message_id, retention).await?;
            Report::of_waiting(&app, message_id, now, horizon)
        }
    };
    let report = report.ok_or_else(|| no_message(app_id, message_id))?;
    let is_under_way = matches!(report.state, MessageState::Accepted | MessageState::Sending);
    let pace = if is_under_way { pace(index, app_id).await? } else { None };
    Ok(MessageView { report, pace })
}

/// Stops sending a message. Devices that were already handed to a transport are not called back.
///
/// # Errors
/// If there is no such message, the index did not answer, or it was not recorded.
pub async fn recall(
    stores: &Stores,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    message_id: MessageId,
    retention: Retention,
) -> anyhow::Result<Recalled> {
    let app: AppRef<'_> = app.into();
    let event = actor.event_of_app(Action::MessageRecalled, app.id);
    let event = AuditEvent { message: Some(message_id), ..event };
    let (now, index, ledger) = (UnixMillis::now(), &*stores.index, &*stores.ledger);
    let recall = async {
        let app_id = app.id;
        let app = match app.generation {
            Some(generation) => AppKey { id: app_id.clone(), generation },
            None => key(index, app_id).await?,
        };
        let (recalled, entry) =
            match recall_everywhere(ledger, &app, &message_id, now, retention).await? {
                RecallOutcome::Recalled(entry) => (true, entry),
                RecallOutcome::AlreadyClosed(entry) => (false, entry),
                RecallOutcome::Unknown => bail!(no_message(app_id, &message_id)),
            };
        Ok(Recalled { report: Report::of(&entry, now), recalled })
    };
    recorded_if(Some(index), event, recall, |done| done.recalled).await
}

fn no_message(app_id: &AppId, message_id: &MessageId) -> Refusal {
    Refusal::Missing(format!("{app_id} has no message {message_id}"))
}

/// Returns the key of the app with this name, or of the last one that had it.
///
/// # Errors
/// If no app ever had it here, or the index did not answer.
async fn key(index: &dyn Index, app_id: &AppId) -> anyhow::Result<AppKey> {
    if let Some(app) = index.app(app_id).await? {
        return Ok(AppKey::from(&app));
    }
    let last = index.removed_apps(app_id).await?.checked_sub(1);
    let none = || Refusal::Missing(format!("there is no app {app_id} in this store"));
    let generation = last.ok_or_else(none)?;
    Ok(AppKey { id: app_id.clone(), generation })
}

/// Refuses to guess about a message without a ledger if its app went to another store.
///
/// # Errors
/// If it did; the text names that store.
async fn check_here(index: &dyn Index, app_id: &AppId) -> anyhow::Result<()> {
    if let Some(moved) = index.app(app_id).await?.and_then(|app| app.moved_to) {
        let store = moved.store;
        bail!(Refusal::Conflict(format!("{app_id} has moved from here to {store}: ask there")));
    }
    Ok(())
}

async fn pace(index: &dyn Index, app_id: &AppId) -> Result<Option<NonZeroU32>, IndexError> {
    Ok(index.app(app_id).await?.and_then(|app| app.pace))
}
