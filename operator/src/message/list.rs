//! The messages of an app, newest first.

use push_boot::engines::Stores;
use push_ledger::{MOST_EXAMINED, MessageQuery, list_messages};
use push_model::{
    app::AppKey,
    ids::AppId,
    ledger::{ListPlace, MessageState},
    report::ReportPage,
    time::UnixMillis,
};

use crate::refusal::Refusal;

/// The most pages that one list reads, so that a state that few messages are in ends it, too.
const MOST_PAGES: usize = 100;

/// Lists the messages that a worker has begun: at most `limit`, behind the page that ended with this cursor.
/// There may be fewer, although the list goes on, if few are in the state that is asked for.
///
/// # Errors
/// If there is no such app, the cursor is not one of its messages, or the index did not answer.
pub async fn list(
    stores: &Stores,
    app_id: &AppId,
    limit: usize,
    cursor: Option<&str>,
    state: Option<MessageState>,
) -> anyhow::Result<ReportPage> {
    let app = stores
        .index
        .app(app_id)
        .await?
        .ok_or_else(|| Refusal::Missing(format!("there is no app {app_id}")))?;
    let (key, now) = (AppKey::from(&app), UnixMillis::now());
    let place = |cursor| {
        let place = ListPlace::of_cursor(&key, &app.id_key, cursor);
        let wrong = || format!("the cursor is not one of the messages of {app_id}");
        place.ok_or_else(|| Refusal::Invalid(wrong()))
    };
    let mut before = cursor.map(place).transpose()?;
    let mut messages = Vec::new();
    for _ in 0..MOST_PAGES {
        let missing = limit.saturating_sub(messages.len()).min(MOST_EXAMINED);
        let query = MessageQuery { limit: missing, before, state };
        let page = list_messages(&*stores.ledger, &key, &query, now).await?;
        messages.extend(page.messages);
        before = page.next;
        if before.is_none() || messages.len() >= limit {
            break;
        }
    }
    let next_cursor = before.map(|before| before.cursor(&key, &app.id_key));
    Ok(ReportPage { messages, next_cursor })
}
