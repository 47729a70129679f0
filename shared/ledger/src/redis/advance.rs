//! Steps of partitions: compare-and-swap on the record, or a script on the expanded entry.

use futures::future::join_all;
use push_model::{
    app::AppKey,
    ids::{AppId, MessageId},
    ledger::{Advance, AdvanceOutcome, MessageStep, record},
};
use push_store::{IndexError, redis::keys::MessageKeys};
use tracing::debug;

use super::{
    list::kept_lists,
    records::{MAX_RECORD, PageLifetime, Swap, Swapped, record_of},
    stored_entry::{TRIES, contended, decode},
};
use crate::redis::RedisLedger;

/// Returns how long the page is kept after a step.
fn lifetime(step: &Advance) -> PageLifetime {
    step.keep_until.map_or_else(PageLifetime::default, PageLifetime::until)
}

/// The step as a change of the record's head, with the counts appended; none if the step depends on
/// the rest of the record.
fn head_swap(keys: &MessageKeys, message: &MessageId, step: &Advance) -> Option<Swap> {
    let Advance { dedup_nonce, partition: 0, from, to, leftovers, counts, .. } = step else {
        return None;
    };
    let has_outcomes = counts.targeted == counts.outcomes.total();
    if !has_outcomes || leftovers.as_ref().is_some_and(|leftovers| !leftovers.is_empty()) {
        return None;
    }
    let old = record::head(*dedup_nonce, from, false);
    let new = record::head(*dedup_nonce, to, false);
    let (behind, keep) = (record::counts(counts), lifetime(step));
    let kept_lists = kept_lists(keys, message, step.keep_until);
    Some(Swap { behind, keep, kept_lists, ..Swap::of(keys, old, new) })
}

impl RedisLedger {
    pub(super) async fn advance_entry(
        &self,
        app: &AppKey,
        message: &MessageId,
        step: &Advance,
    ) -> Result<AdvanceOutcome, IndexError> {
        let keys = self.keys.message(app, message);
        let app = &app.id;
        if step.partition > 0 {
            // Only an expanded entry has more than one partition.
            return match self.advance_expanded(&keys, message, step).await? {
                AdvanceOutcome::Unknown => {
                    Ok(self.advance_from_record(&keys, app, message, step, None).await?.0)
                }
                advanced => Ok(advanced),
            };
        }
        let known = match head_swap(&keys, message, step) {
            Some(swap) => match self.swap(swap).await? {
                Swapped::Done => return Ok(AdvanceOutcome::Saved { recalled: false }),
                // The entry may be expanded, with its stub on a page of its own.
                Swapped::Refused(None) => return self.advance_expanded(&keys, message, step).await,
                Swapped::Refused(record) => record,
            },
            None => None,
        };
        let (advanced, was_expanded) =
            self.advance_from_record(&keys, app, message, step, known).await?;
        if was_expanded && step.to.is_ended() && matches!(advanced, AdvanceOutcome::Saved { .. }) {
            // The step is saved. The entry may take more room than necessary, which does no harm.
            if let Err(error) = self.compact(&keys, app, message).await {
                debug!(message_id = %message, error = &error as &dyn std::error::Error, "an entry stays expanded");
            }
        }
        Ok(advanced)
    }

    /// Takes steps of many entries: those that only change the heads of records together, the
    /// others with a request each, concurrently.
    pub(super) async fn advance_entries(
        &self,
        steps: &[MessageStep],
    ) -> Vec<Result<AdvanceOutcome, IndexError>> {
        let swap = |one: &MessageStep| {
            head_swap(&self.keys.message(&one.app, &one.message), &one.message, &one.step)
        };
        let swapped = self.swap_some(steps.iter().map(swap).collect()).await;
        let answers =
            steps.iter().zip(swapped).map(async |(one, swapped)| match swapped.transpose()? {
                Some(Swapped::Done) => Ok(AdvanceOutcome::Saved { recalled: false }),
                Some(Swapped::Refused(_)) | None => {
                    self.advance_entry(&one.app, &one.message, &one.step).await
                }
            });
        join_all(answers).await
    }

    /// Takes a step on the decoded record, or on the expanded entry if the record is a stub.
    /// `known` is the record if it was read already. Returns also whether the entry is expanded.
    async fn advance_from_record(
        &self,
        keys: &MessageKeys,
        app: &AppId,
        message: &MessageId,
        step: &Advance,
        mut known: Option<Vec<u8>>,
    ) -> Result<(AdvanceOutcome, bool), IndexError> {
        for _ in 0..TRIES {
            let record = match known.take() {
                Some(record) => record,
                None => match self.read_record(keys).await? {
                    Some(record) => record,
                    None => return Ok((self.advance_expanded(keys, message, step).await?, false)),
                },
            };
            if record::is_stub(&record) {
                return Ok((self.advance_expanded(keys, message, step).await?, true));
            }
            let mut entry = decode(app, message, &record)?;
            let advanced = entry.advance(step);
            let AdvanceOutcome::Saved { .. } = advanced else { return Ok((advanced, false)) };
            let short = record::encode(&entry).filter(|record| record.len() <= MAX_RECORD);
            let saved = match short {
                Some(new) => {
                    let keep = lifetime(step);
                    let kept_lists = kept_lists(keys, message, step.keep_until);
                    let swap = Swap { keep, kept_lists, ..Swap::of(keys, record, new) };
                    match self.swap(swap).await? {
                        Swapped::Done => true,
                        Swapped::Refused(None) => return Ok((AdvanceOutcome::Unknown, false)),
                        Swapped::Refused(now) => {
                            known = now;
                            false
                        }
                    }
                }
                None => self.expand(keys, message, (&record, &entry), step.keep_until).await?,
            };
            if saved {
                return Ok((advanced, false));
            }
        }
        Err(contended())
    }

    async fn read_record(&self, keys: &MessageKeys) -> Result<Option<Vec<u8>>, IndexError> {
        let mut get = redis::cmd("HGET");
        get.arg(&keys.page).arg(&keys.field.0);
        record_of(self.quick.read(&get).await?)
    }
}
