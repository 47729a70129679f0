//! Recalls: the answer comes when every worker knows of the recall.

use push_model::{
    app::AppKey,
    ids::{AudienceKind, MessageId},
    ledger::{Horizon, RECALL_CHECK, Recall, RecallOutcome, Retention},
    time::UnixMillis,
};
use push_store::IndexError;

use crate::Ledger;

/// Reads the [`Horizon`]: which messages without an entry may still wait for a worker.
///
/// # Errors
/// If the ledger did not answer.
pub async fn horizon(
    ledger: &dyn Ledger,
    app: &AppKey,
    message: &MessageId,
    retention: Retention,
) -> Result<Horizon, IndexError> {
    let evicted_until = ledger.evicted_until(app, message).await?;
    Ok(Horizon { retention, evicted_until })
}

/// Recalls a message, and answers when every worker knows: from then on nothing of it is handed to
/// a transport.
///
/// A worker hands a batch over only if it learnt less than [`RECALL_CHECK`] ago that the message is
/// not recalled. So the answer comes that much time after the recall, and counts what was sent
/// meanwhile.
///
/// # Errors
/// If the ledger did not answer; the message may be recalled all the same.
pub async fn recall_everywhere(
    ledger: &dyn Ledger,
    app: &AppKey,
    message: &MessageId,
    at: UnixMillis,
    retention: Retention,
) -> Result<RecallOutcome, IndexError> {
    let begun = begin_recall(ledger, app, message, at, retention).await?;
    recall_known(ledger, app, message, begun).await
}

/// The first half of [`recall_everywhere`]: after it the message is recalled, and workers that have
/// not learnt of it may still hand over a batch.
///
/// # Errors
/// As [`recall_everywhere`].
pub async fn begin_recall(
    ledger: &dyn Ledger,
    app: &AppKey,
    message: &MessageId,
    at: UnixMillis,
    retention: Retention,
) -> Result<RecallOutcome, IndexError> {
    let recall = Recall::new(app, message, at, horizon(ledger, app, message, retention).await?);
    let outcome = ledger.recall(app, message, &recall).await?;
    if message.audience_kind() != Some(AudienceKind::Named) {
        // Nothing of it is left to do. If this fails, the worker that finds it recalled does it.
        let _ = ledger.unlist_broadcast(message).await;
    }
    Ok(outcome)
}

/// The second half of [`recall_everywhere`]: waits until every worker knows, and reads what was sent
/// meanwhile.
///
/// # Errors
/// If the ledger did not answer; the message is recalled all the same.
pub async fn recall_known(
    ledger: &dyn Ledger,
    app: &AppKey,
    message: &MessageId,
    begun: RecallOutcome,
) -> Result<RecallOutcome, IndexError> {
    let RecallOutcome::Recalled(entry) = begun else { return Ok(begun) };
    if entry.dedup_nonce.is_some() && entry.is_closed() {
        return Ok(RecallOutcome::Recalled(entry));
    }
    tokio::time::sleep(RECALL_CHECK).await;
    let later = ledger.entry(app, message).await?;
    Ok(RecallOutcome::Recalled(later.unwrap_or(entry)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use push_model::ledger::NewEntry;
    use push_sqlite::StoreSettings;
    use push_store::sqlite::SqliteStore;
    use tempfile::TempDir;
    use tokio::time::Instant;

    use super::*;
    use crate::{Ledger, sqlite::SqliteLedger};

    #[tokio::test]
    async fn a_recall_is_answered_when_every_worker_knows() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("ledger.sqlite3");
        let store = SqliteStore::open(&file, "test", StoreSettings::default()).await.unwrap();
        let ledger = SqliteLedger::open(store).await.unwrap();
        let app = AppKey::first("app".parse().unwrap());
        let retention = Retention::all(Duration::from_hours(1));
        let recalled_after = async |message: &MessageId| {
            let (begun, now) = (Instant::now(), UnixMillis::now());
            let outcome = recall_everywhere(&ledger, &app, message, now, retention).await.unwrap();
            assert!(matches!(outcome, RecallOutcome::Recalled(_)), "{outcome:?}");
            begun.elapsed()
        };
        // A ledger that lost the entry of a message in work cannot tell it from one without an
        // entry.
        let without_entry = MessageId::issue_named(&app.id);
        assert!(recalled_after(&without_entry).await >= RECALL_CHECK);
        let in_work = MessageId::issue_named(&app.id);
        let entry = NewEntry {
            message_id: in_work,
            app: app.clone(),
            accepted_at: UnixMillis::now(),
            expires_at: UnixMillis::MAX,
            dedup_nonce: 1,
            keep_until: UnixMillis::MAX,
            plan: None,
            claim: None,
            replaces: None,
            broadcast: None,
        };
        ledger.begin(&entry).await.unwrap();
        assert!(recalled_after(&in_work).await >= RECALL_CHECK);
    }
}
