//! Beginning entries: as a record if the plan is that of named devices, expanded otherwise.

use push_model::ledger::{Entry, NewEntry, PartitionState, Plan, record};
use push_store::{IndexError, redis::keys::MessageKeys};

use super::{
    records::{PageLifetime, Swap, Swapped},
    stored_entry::{StoredEntry, TRIES, contended, corrupt, decode},
};
use crate::redis::RedisLedger;

/// Returns true if the entry begins as a record.
fn begins_as_record(new: &NewEntry) -> bool {
    new.plan.as_ref() == Some(&Plan::named())
}

/// The change that begins an entry as a record, in place of `replaced` if there is one.
fn beginning(keys: &MessageKeys, new: &NewEntry, replaced: Option<Vec<u8>>) -> Swap {
    let state = PartitionState { claim: new.claim, ..PartitionState::default() };
    let head = record::head(new.dedup_nonce, &state, false);
    let behind = record::times(&new.message_id, new.accepted_at, new.expires_at);
    let keep = PageLifetime::until(new.keep_until);
    Swap { behind, keep, ..Swap::of(keys, replaced.unwrap_or_default(), head) }
}

impl RedisLedger {
    pub(super) async fn begin_entry(&self, new: &NewEntry) -> Result<Entry, IndexError> {
        let (app, message) = (&new.app.id, &new.message_id);
        let keys = self.keys.message(&new.app, message);
        let mut replaced = None;
        for _ in 0..TRIES {
            let stored = match begins_as_record(new) {
                true => match self.swap(beginning(&keys, new, replaced.take())).await? {
                    Swapped::Done => return Ok(Entry::begin(new)),
                    Swapped::Refused(Some(record)) if !record::is_stub(&record) => {
                        StoredEntry::Record(record)
                    }
                    Swapped::Refused(_) => self.begin_expanded(&keys, new, None).await?,
                },
                false => self.begin_expanded(&keys, new, replaced.as_deref()).await?,
            };
            match stored {
                StoredEntry::Expanded(entry) => return Ok(*entry),
                StoredEntry::Record(record) => {
                    let entry = decode(app, message, &record)?;
                    if !entry.is_replaced_by(new) {
                        return Ok(entry);
                    }
                    replaced = Some(record);
                }
                StoredEntry::Missing => return Err(corrupt(message, "it has none")),
            }
        }
        Err(contended())
    }

    /// Tells of each entry if it began with this call. Entries that begin expanded are not begun
    /// here.
    pub(super) async fn begin_records(
        &self,
        entries: &[NewEntry],
    ) -> Vec<Result<bool, IndexError>> {
        let swap = |new: &NewEntry| {
            begins_as_record(new).then(|| {
                let keys = self.keys.message(&new.app, &new.message_id);
                beginning(&keys, new, None)
            })
        };
        let answers = self.swap_some(entries.iter().map(swap).collect()).await;
        let begun = |answer| match answer {
            Some(answer) => Ok(answer? == Swapped::Done),
            None => Ok(false),
        };
        answers.into_iter().map(begun).collect()
    }
}
