//! The audit trail in the index: who changed what. Every event is also written to the log, which holds
//! those of commands that run without an index.

use std::net::IpAddr;

use anyhow::bail;
use push_boot::audit::{self, event_of_key, event_of_user};
use push_index::Index;
use push_model::{
    audit::{AUDIT_EVENTS, Action, AuditEvent},
    cursor::StoreList,
    ids::{AppId, SecretName},
    time::UnixMillis,
};
use push_store::IndexError;
use serde::Serialize;

use crate::page::{PageQuery, unreadable};

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

    /// A caller of the admin API of this program, by the name of its key and its address.
    pub fn of_key(program: &str, key: SecretName, address: IpAddr) -> Self {
        Self { template: event_of_key(program, Action::AppChanged, key, address) }
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

/// A page of the audit trail.
#[derive(Debug, Clone, Serialize)]
pub struct AuditPage {
    /// The events, the newest first.
    pub events: Vec<AuditEvent>,
    /// The cursor of the next page; absent at the end of the trail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The events of one app that are shown.
#[derive(Debug, Clone, Copy)]
pub struct OfApp<'a> {
    /// The app.
    pub app: &'a AppId,
    /// Events before this time are those of an earlier app of its name.
    pub since: UnixMillis,
}

/// The place of the last event of a page: its time, and how many older events have the same. New events do not
/// change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    at: UnixMillis,
    before: u64,
}

impl Place {
    fn of(events: &[AuditEvent], position: usize) -> Option<Self> {
        let (at, older) = (events.get(position)?.at, events.get(position + 1..)?);
        Some(Self { at, before: older.iter().filter(|event| event.at == at).count() as u64 })
    }

    fn bytes(self) -> [u8; 16] {
        (u128::from(self.at.0) << 64 | u128::from(self.before)).to_be_bytes()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let both = u128::from_be_bytes(bytes.try_into().ok()?);
        let (at, before) = (u64::try_from(both >> 64).ok()?, both as u64);
        Some(Self { at: UnixMillis(at), before })
    }

    /// Returns where the events behind this place begin; at the end of the trail if the place is gone.
    fn next(self, events: &[AuditEvent]) -> usize {
        let same = events.iter().enumerate().rev().filter(|(_, event)| event.at == self.at);
        let found = usize::try_from(self.before).ok().and_then(|before| same.clone().nth(before));
        found.map_or(events.len(), |(position, _)| position + 1)
    }
}

/// Lists events page by page, the newest first: all of them, or those of one app.
///
/// # Errors
/// If the cursor is not one of this list, or the index did not answer.
pub async fn page(
    index: &dyn Index,
    only: Option<OfApp<'_>>,
    query: PageQuery<'_>,
) -> anyhow::Result<AuditPage> {
    let place = query.place(StoreList::Audit)?;
    let place = place.map(|bytes| Place::read(&bytes).ok_or_else(unreadable)).transpose()?;
    let events = index.audit(AUDIT_EVENTS).await?;
    let first = place.map_or(0, |place| place.next(&events));
    let is_shown = |event: &AuditEvent| {
        only.is_none_or(|OfApp { app, since }| event.app.as_ref() == Some(app) && event.at >= since)
    };
    let mut shown = events.iter().enumerate().skip(first).filter(|(_, event)| is_shown(event));
    let page: Vec<_> = shown.by_ref().take(query.limit).collect();
    let last = page.last().and_then(|(position, _)| Place::of(&events, *position));
    let last = last.filter(|_| shown.next().is_some());
    let next_cursor = last.map(|last| query.cursor(StoreList::Audit, &last.bytes()));
    Ok(AuditPage {
        events: page.into_iter().map(|(_, event)| event.clone()).collect(),
        next_cursor,
    })
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
