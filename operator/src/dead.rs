//! Dead letters: the queue messages that no worker could process.

use anyhow::bail;
use push_index::Index;
use push_model::{
    app::AppKey,
    audit::{Action, AuditEvent},
    cursor::StoreList,
    envelope::app_of_envelope,
    ids::AppId,
    time::UnixMillis,
};
use push_queue::{DeadLetter, Lane, Queue};
use serde::Serialize;

use crate::{
    audit::{Actor, recorded},
    page::PageQuery,
    refusal::Refusal,
};

/// A dead letter without its envelope.
#[derive(Debug, Clone, Serialize)]
pub struct DeadLetterHead {
    /// Identifies it for [`replay`] and [`drop_letters`].
    pub id: String,
    /// The app that it is about; none if it is about several, or cannot be read.
    pub app_id: Option<AppId>,
    /// The lane it came from; none if that is unknown.
    pub lane: Option<&'static str>,
    /// The reason for which it was dead-lettered.
    pub reason: String,
    /// When it was dead-lettered; none if that is unknown.
    pub died_at: Option<UnixMillis>,
    /// The length of the envelope.
    pub bytes: usize,
}

/// A dead letter.
#[derive(Debug, Clone, Serialize)]
pub struct DeadLetterView {
    /// All but the envelope.
    #[serde(flatten)]
    pub head: DeadLetterHead,
    /// The envelope, as text.
    pub payload: String,
}

impl From<&DeadLetter> for DeadLetterHead {
    fn from(DeadLetter { id, lane, reason, died_at, payload }: &DeadLetter) -> Self {
        Self {
            id: id.clone(),
            app_id: app_of_envelope(payload).map(|app| app.id),
            lane: lane.map(Lane::name),
            reason: reason.clone(),
            died_at: *died_at,
            bytes: payload.len(),
        }
    }
}

impl From<DeadLetter> for DeadLetterView {
    fn from(letter: DeadLetter) -> Self {
        let head = DeadLetterHead::from(&letter);
        Self { head, payload: String::from_utf8_lossy(&letter.payload).into_owned() }
    }
}

/// A page of dead letters.
#[derive(Debug, Clone, Serialize)]
pub struct DeadLetterPage {
    /// The dead letters, the oldest first.
    pub dead_letters: Vec<DeadLetterHead>,
    /// The cursor of the next page; absent at the end of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The dead letters that a caller sees.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    /// All.
    All,
    /// Those about apps of this name.
    Named(&'a AppId),
    /// Those about this app, and not about an earlier one of its name.
    Only(&'a AppKey),
}

impl Scope<'_> {
    fn has(self, letter: &DeadLetter) -> bool {
        match self {
            Self::All => true,
            Self::Named(id) => app_of_envelope(&letter.payload).is_some_and(|app| app.id == *id),
            Self::Only(key) => app_of_envelope(&letter.payload).is_some_and(|app| app == *key),
        }
    }

    fn app(self) -> Option<AppId> {
        match self {
            Self::All => None,
            Self::Named(id) => Some(id.clone()),
            Self::Only(key) => Some(key.id.clone()),
        }
    }
}

/// The number of dead letters that went back to their lanes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Replayed {
    /// The number.
    pub replayed: u64,
}

/// The number of dead letters that were deleted.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Dropped {
    /// The number.
    pub dropped: u64,
}

/// Lists at most `limit` dead letters, the oldest first.
///
/// # Errors
/// If the queue did not answer.
pub async fn list(queue: &dyn Queue, limit: usize) -> anyhow::Result<Vec<DeadLetterView>> {
    Ok(queue.dead(limit).await?.into_iter().map(Into::into).collect())
}

/// Lists dead letters page by page, the oldest first. If the last letter of the page before is no longer there, the
/// list begins anew.
///
/// # Errors
/// If the cursor is not one of this list, or the queue did not answer.
pub async fn page(
    queue: &dyn Queue,
    scope: Scope<'_>,
    query: PageQuery<'_>,
) -> anyhow::Result<DeadLetterPage> {
    let after = query.place(StoreList::DeadLetters)?;
    // One more than is shown tells if the list goes on.
    let wanted = query.limit.saturating_add(1);
    let (mut first, mut behind) = (Vec::new(), Vec::new());
    let mut is_behind = after.is_none();
    let mut take = |letter: DeadLetter| {
        let shown = scope.has(&letter).then(|| DeadLetterHead::from(&letter));
        if is_behind {
            behind.extend(shown);
        } else if first.len() < wanted {
            first.extend(shown);
        }
        is_behind = is_behind || after.as_deref() == Some(letter.id.as_bytes());
        behind.len() < wanted
    };
    queue.visit_dead(&mut take).await?;
    let mut dead_letters = if is_behind { behind } else { first };
    let goes_on = dead_letters.len() > query.limit;
    dead_letters.truncate(query.limit);
    let last = dead_letters.last().filter(|_| goes_on);
    let next_cursor = last.map(|last| query.cursor(StoreList::DeadLetters, last.id.as_bytes()));
    Ok(DeadLetterPage { dead_letters, next_cursor })
}

/// Shows a dead letter.
///
/// # Errors
/// If there is none with this id that the caller sees, or the queue did not answer.
pub async fn show(queue: &dyn Queue, scope: Scope<'_>, id: &str) -> anyhow::Result<DeadLetterView> {
    let mut found = None;
    let mut look = |letter: DeadLetter| {
        if letter.id == id && scope.has(&letter) {
            found = Some(letter);
        }
        found.is_none()
    };
    queue.visit_dead(&mut look).await?;
    let found = found.ok_or_else(no_letter)?;
    Ok(found.into())
}

/// Limits a selection to the dead letters that the caller sees: those of these ids, or all without ids. None means
/// all that there are.
///
/// # Errors
/// If none of those with these ids is among them, or the queue did not answer.
pub async fn select(
    queue: &dyn Queue,
    scope: Scope<'_>,
    ids: Option<Vec<String>>,
) -> anyhow::Result<Option<Vec<String>>> {
    if let (Scope::All, None) = (scope, &ids) {
        return Ok(None);
    }
    let mut selected = Vec::new();
    let mut look = |letter: DeadLetter| {
        let is_named = ids.as_ref().is_none_or(|ids| ids.contains(&letter.id));
        if is_named && scope.has(&letter) {
            selected.push(letter.id);
        }
        true
    };
    queue.visit_dead(&mut look).await?;
    if selected.is_empty() && ids.is_some() {
        bail!(no_letter());
    }
    Ok(Some(selected))
}

fn no_letter() -> Refusal {
    Refusal::Missing("there is no such dead letter".to_owned())
}

fn event(actor: &Actor, action: Action, scope: Scope<'_>) -> AuditEvent {
    AuditEvent { app: scope.app(), ..actor.event(action) }
}

/// Moves dead letters back to the lanes they came from: those with these ids, or all without ids. `scope` says in the
/// audit trail whose they are ([`select`]). Without an index, only the log says who did it.
///
/// # Errors
/// If the queue did not answer, or it was not recorded.
pub async fn replay(
    queue: &dyn Queue,
    index: Option<&dyn Index>,
    actor: &Actor,
    scope: Scope<'_>,
    ids: Option<&[String]>,
) -> anyhow::Result<Replayed> {
    let work = async { Ok(Replayed { replayed: queue.replay_dead(ids).await? }) };
    recorded(index, event(actor, Action::DeadLettersReplayed, scope), work).await
}

/// Deletes dead letters: those with these ids, or all without ids. `scope` says in the audit trail whose they are
/// ([`select`]). Without an index, only the log says who did it.
///
/// # Errors
/// If the queue did not answer, or it was not recorded.
pub async fn drop_letters(
    queue: &dyn Queue,
    index: Option<&dyn Index>,
    actor: &Actor,
    scope: Scope<'_>,
    ids: Option<&[String]>,
) -> anyhow::Result<Dropped> {
    let work = async { Ok(Dropped { dropped: queue.drop_dead(ids).await? }) };
    recorded(index, event(actor, Action::DeadLettersDropped, scope), work).await
}
