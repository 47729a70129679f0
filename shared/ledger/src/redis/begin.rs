//! Beginning entries: as a record if the plan is that of named devices, expanded otherwise.
//!
//! An entry that takes the place of another job's, which is rare, begins expanded in any case.

use push_model::ledger::{Entry, NewEntry, PartitionState, Plan, eviction_mark, record};
use push_store::{IndexError, redis::keys::MessageKeys};

use super::{
    list::ListMember,
    records::{PageLifetime, Swap, Swapped},
    stored_entry::{StoredEntry, TRIES, contended, corrupt, decode},
};
use crate::redis::RedisLedger;

/// Returns true if the entry begins as a record.
fn begins_as_record(new: &NewEntry) -> bool {
    new.plan.as_ref() == Some(&Plan::named()) && new.broadcast.is_none()
}

/// The change that begins an entry as a record.
fn beginning(keys: &MessageKeys, new: &NewEntry) -> Swap {
    let state = PartitionState { claim: new.claim, ..PartitionState::default() };
    let head = record::head(new.dedup_nonce, &state, false);
    let behind = record::times(&new.message_id, new.accepted_at, new.expires_at);
    let keep = PageLifetime::until(new.keep_until);
    let listed = Some(ListMember::of_record(keys, new));
    Swap { behind, keep, listed, ..Swap::of(keys, Vec::new(), head) }
}

impl RedisLedger {
    pub(super) async fn begin_entry(&self, new: &NewEntry) -> Result<Option<Entry>, IndexError> {
        let (app, message) = (&new.app.id, &new.message_id);
        let keys = self.keys.message(&new.app, message);
        let unless_evicted = Some(eviction_mark(message, new.dedup_nonce));
        let mut replaced: Option<Vec<u8>> = None;
        for _ in 0..TRIES {
            let stored = if replaced.is_none() && begins_as_record(new) {
                let begin = Swap { unless_evicted, ..beginning(&keys, new) };
                match self.swap(begin).await? {
                    Swapped::Done => return Ok(Some(Entry::begin(new))),
                    Swapped::Refused(Some(record)) if !record::is_stub(&record) => {
                        StoredEntry::Record(record)
                    }
                    Swapped::Refused(_) => self.begin_expanded(&keys, new, None).await?,
                }
            } else {
                self.begin_expanded(&keys, new, replaced.as_deref()).await?
            };
            match stored {
                StoredEntry::Expanded(entry) => return Ok(Some(*entry)),
                StoredEntry::Evicted => return Ok(None),
                StoredEntry::Record(record) => {
                    let entry = decode(app, message, &record)?;
                    if !entry.is_replaced_by(new) {
                        return Ok(Some(entry));
                    }
                    replaced = Some(record);
                }
                StoredEntry::Missing => return Err(corrupt(message, "it has none")),
            }
        }
        Err(contended())
    }

    /// Tells of each entry if it began with this call. Entries that begin expanded are not begun
    /// here. Remembered evictions are not looked for, which would cost each first delivery of a push.
    pub(super) async fn begin_records(
        &self,
        entries: &[NewEntry],
    ) -> Vec<Result<bool, IndexError>> {
        let swap = |new: &NewEntry| {
            begins_as_record(new).then(|| {
                let keys = self.keys.message(&new.app, &new.message_id);
                beginning(&keys, new)
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
