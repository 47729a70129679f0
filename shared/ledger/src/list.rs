//! An app's messages, newest first, page by page.
//!
//! An entry is in the list from the step that begins it, and as long as it exists. Redis has no order
//! of an app's entries, so the step that begins entries also lists them (`redis/list`): at most a hundred
//! members in each list, with the memory of which the ledger's size is counted. In SQLite the keys of the
//! ledger's own tables are the list (`sqlite/list.rs`), and only ids that were derived from an
//! `Idempotency-Key` need an index.

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    id_key::IdKey,
    ledger::{Entry, ListPlace, MessageState},
    report::{Report, ReportPage},
    time::UnixMillis,
};
use push_store::IndexError;

use crate::Ledger;

/// The most entries that one page reads, whatever it looks for.
pub const MOST_EXAMINED: usize = 1000;

/// The most steps in which one page of messages in any state reads them.
const MOST_STEPS: usize = 8;

/// Some entries of an app, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryPage {
    /// The entries.
    pub entries: Vec<Entry>,
    /// The place behind which the next page goes on; none if there are no more entries.
    pub next: Option<ListPlace>,
}

/// The list of each app's entries.
#[async_trait]
pub trait EntryLists: Send + Sync {
    /// The newest entries of an app that are older than a place, at most `limit`. There may be fewer,
    /// even none, although there are more entries: the work of a call is bounded.
    ///
    /// Entries that begin meanwhile neither hide others nor repeat them. Entries of messages that were
    /// recalled before a worker began them may be among the entries.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn entries_before(
        &self,
        app: &AppKey,
        before: Option<ListPlace>,
        limit: usize,
    ) -> Result<EntryPage, IndexError>;
}

/// A request for a page of an app's messages.
#[derive(Debug, Clone, Copy)]
pub struct MessageQuery {
    /// The most messages of the page.
    pub limit: usize,
    /// The end of the page before.
    pub before: Option<ListPlace>,
    /// Asks for messages in this state only.
    pub state: Option<MessageState>,
}

/// A page of an app's messages, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagePage {
    /// The messages. There may be fewer than were asked for: a page reads at most [`MOST_EXAMINED`]
    /// entries.
    pub messages: Vec<Report>,
    /// The place behind which the next page goes on; none at the end of the list.
    pub next: Option<ListPlace>,
}

impl MessagePage {
    /// The page as it is answered, with a cursor of this app.
    pub fn into_reports(self, app: &AppKey, key: &IdKey) -> ReportPage {
        let next_cursor = self.next.map(|next| next.cursor(app, key));
        ReportPage { messages: self.messages, next_cursor }
    }
}

/// Reads a page of an app's messages, those that a worker has begun.
///
/// # Errors
/// If the ledger did not answer.
pub async fn list_messages(
    ledger: &dyn Ledger,
    app: &AppKey,
    query: &MessageQuery,
    now: UnixMillis,
) -> Result<MessagePage, IndexError> {
    let mut page = MessagePage { messages: Vec::new(), next: query.before };
    let mut examined = 0;
    // In Redis each step looks for the newest pages of the ledger again, so a page of one state has one step.
    for _ in 0..query.state.map_or(MOST_STEPS, |_| 1) {
        let missing = query.limit.saturating_sub(page.messages.len());
        let wanted = if query.state.is_some() { MOST_EXAMINED } else { missing };
        let limit = wanted.min(MOST_EXAMINED.saturating_sub(examined));
        if missing == 0 || limit == 0 {
            break;
        }
        let EntryPage { entries, next } = ledger.entries_before(app, page.next, limit).await?;
        examined += entries.len();
        page.next = next;
        let last = entries.last().map(ListPlace::of_entry);
        for entry in &entries {
            let report = Report::in_list(entry, now);
            let is_asked_for = query.state.is_none_or(|state| state == report.state);
            if entry.dedup_nonce.is_none() || !is_asked_for {
                continue;
            }
            page.messages.push(report);
            let place = ListPlace::of_entry(entry);
            if page.messages.len() == query.limit && last != Some(place) {
                page.next = Some(place);
                break;
            }
        }
        if page.next.is_none() {
            break;
        }
    }
    Ok(page)
}
