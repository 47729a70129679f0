//! Recalls: a script on the expanded entry, or compare-and-swap on the record.

use push_model::{
    app::AppKey,
    ids::MessageId,
    ledger::{Recall, RecallOutcome, record},
};
use push_store::IndexError;

use super::{
    RedisLedger,
    records::{MAX_RECORD, Swap, Swapped},
    stored_entry::{StoredEntry, TRIES, contended, decode, is_of},
};

impl RedisLedger {
    pub(super) async fn recall_entry(
        &self,
        app: &AppKey,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<RecallOutcome, IndexError> {
        let keys = self.keys.message(app, message);
        for _ in 0..TRIES {
            let record = match self.recall_expanded(&keys, &app.id, message, recall).await? {
                StoredEntry::Missing | StoredEntry::Evicted => return Ok(RecallOutcome::Unknown),
                StoredEntry::Expanded(entry) if entry.recalled_at.is_some() => {
                    return Ok(RecallOutcome::Recalled(*entry));
                }
                StoredEntry::Expanded(entry) => return Ok(RecallOutcome::AlreadyClosed(*entry)),
                StoredEntry::Record(_) if !is_of(app, message) => {
                    return Ok(RecallOutcome::Unknown);
                }
                StoredEntry::Record(record) => record,
            };
            let mut entry = decode(&app.id, message, &record)?;
            if entry.recalled_at.is_some() {
                return Ok(RecallOutcome::Recalled(entry));
            }
            if entry.is_closed() && !entry.ended_unsent() {
                return Ok(RecallOutcome::AlreadyClosed(entry));
            }
            entry.recalled_at = Some(recall.at);
            let short = record::encode(&entry).filter(|record| record.len() <= MAX_RECORD);
            let saved = match short {
                Some(new) => self.swap(Swap::of(&keys, record, new)).await? == Swapped::Done,
                None => self.expand(&keys, message, (&record, &entry), None).await?,
            };
            if saved {
                return Ok(RecallOutcome::Recalled(entry));
            }
        }
        Err(contended())
    }
}
