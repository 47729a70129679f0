//! The ledger.
//!
//! An entry is kept in one of two ways. Most are of pushes to a few named devices and fit into a
//! short *record* ([`record`]): some hundred records that were begun one after the other share a
//! page, a hash that Redis stores packed ([`records`]). A broadcast has a plan and many partitions,
//! and a push of which some devices are to be tried again has leftovers: such an entry has fields
//! of its own, and its place on the page says so ([`rich`]). Page and fields have one hash tag, so
//! that an entry changes from one way to the other in one step.
//!
//! A page is kept until the last of its entries may be forgotten.

mod bounds;
mod records;
mod rich;

use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use push_model::{
    ids::{AppId, MessageId, Origin},
    ledger::{
        Advance, Advanced, Entry, MessageStep, Opened, PartitionState, PartitionView, Plan, Recall,
        RecallOutcome, record,
    },
};
use redis::{Pipeline, Value};
use tracing::debug;

use self::records::{LONGEST, Swap, Swapped, record_of};
pub(super) use self::records::{Swaps, swaps};
use super::{RedisIndex, keys::MessageKeys};
use crate::{IndexError, Ledger};

/// An entry is kept at least this long after it was begun, however late that was: its message is
/// being worked on. Longer than the longest delay of a queue message, rounding included.
const KEEP_AT_LEAST: Duration = Duration::from_secs(2 * 3600);

/// How often a change is tried against others that change the entry meanwhile.
const TRIES: u32 = 8;

/// What a page or an entry says of a message.
#[derive(Debug)]
enum Stored {
    Nothing,
    /// A record, not a stub.
    Record(Vec<u8>),
    Entry(Box<Entry>),
}

fn corrupt(message: &MessageId, field: &str) -> IndexError {
    IndexError::Corrupt(format!("the ledger entry of message {message}: {field}"))
}

fn decode(app: &AppId, message: &MessageId, record: &[u8]) -> Result<Entry, IndexError> {
    record::decode(app, message, record).map_err(|_| corrupt(message, "its record"))
}

/// Others changed an entry as often as it was tried to. That passes.
fn contended() -> IndexError {
    IndexError::Refused("others change the entry all the time".into())
}

/// What a script answered: a record, or an entry's fields.
fn stored(
    answer: Value,
    read: impl FnOnce(Value) -> Result<Option<Entry>, IndexError>,
) -> Result<Stored, IndexError> {
    match answer {
        Value::BulkString(record) => Ok(Stored::Record(record)),
        fields => Ok(read(fields)?.map_or(Stored::Nothing, |entry| Stored::Entry(entry.into()))),
    }
}

/// Whether this app can have such a message. A record does not say whose it is; the id does.
fn is_of(app: &AppId, message: &MessageId) -> bool {
    message.origin(app) != Origin::Foreign
}

impl RedisIndex {
    /// Changes records, one answer each.
    async fn swap_all(&self, swaps: Vec<Swap>) -> Vec<Result<Swapped, IndexError>> {
        let count = swaps.len();
        if count == 0 {
            return Vec::new();
        }
        match self.swaps.call(swaps).await {
            Ok(answers) => answers,
            Err(ended) => (0..count).map(|_| Err(IndexError::Unsure(Box::new(ended)))).collect(),
        }
    }

    /// The same, where some have nothing to change.
    async fn swap_some(
        &self,
        swaps: Vec<Option<Swap>>,
    ) -> Vec<Option<Result<Swapped, IndexError>>> {
        let some: Vec<bool> = swaps.iter().map(Option::is_some).collect();
        let mut answers = self.swap_all(swaps.into_iter().flatten().collect()).await.into_iter();
        some.into_iter().map(|is_some| is_some.then(|| answers.next()).flatten()).collect()
    }

    async fn swap(&self, swap: Swap) -> Result<Swapped, IndexError> {
        let answer = self.swap_all(vec![swap]).await.pop();
        answer.unwrap_or_else(|| Err(IndexError::Unsure("a change without an answer".into())))
    }

    /// Takes a step of an entry from what its record says, which is given if it is known. Tells also
    /// whether the entry has fields.
    async fn advance_record(
        &self,
        keys: &MessageKeys,
        app: &AppId,
        message: &MessageId,
        step: &Advance,
        mut known: Option<Vec<u8>>,
    ) -> Result<(Advanced, bool), IndexError> {
        for _ in 0..TRIES {
            let record = match known.take() {
                Some(record) => record,
                None => match self.record(keys).await? {
                    Some(record) => record,
                    None => return Ok((Advanced::Unknown, false)),
                },
            };
            if record::is_stub(&record) {
                return Ok((self.advance_fields(keys, step).await?, true));
            }
            let mut entry = decode(app, message, &record)?;
            let advanced = entry.advance(step);
            let Advanced::Saved { .. } = advanced else { return Ok((advanced, false)) };
            let short = record::encode(&entry).filter(|record| record.len() <= LONGEST);
            let saved = match short {
                Some(new) => {
                    let keep = keep(step);
                    match self.swap(Swap { keep, ..Swap::of(keys, record, new) }).await? {
                        Swapped::Done => true,
                        Swapped::Not(None) => return Ok((Advanced::Unknown, false)),
                        Swapped::Not(now) => {
                            known = now;
                            false
                        }
                    }
                }
                None => self.promote(keys, &record, &entry, step.keep_until).await?,
            };
            if saved {
                return Ok((advanced, false));
            }
        }
        Err(contended())
    }

    async fn record(&self, keys: &MessageKeys) -> Result<Option<Vec<u8>>, IndexError> {
        let mut get = redis::cmd("HGET");
        get.arg(&keys.page).arg(&keys.field);
        record_of(self.quick.read(&get).await?)
    }

    /// Reads a record, and of an entry with fields what `ask` asks for, as one step.
    async fn look(
        &self,
        keys: &MessageKeys,
        ask: impl FnOnce(&mut Pipeline),
    ) -> Result<(Option<Vec<u8>>, Value), IndexError> {
        let mut pipe = Pipeline::with_capacity(2);
        pipe.atomic().cmd("HGET").arg(&keys.page).arg(&keys.field);
        ask(&mut pipe);
        let mut answers = self.quick.read_all(&pipe).await?.into_iter();
        let record = record_of(answers.next().unwrap_or_default())?;
        Ok((record, answers.next().unwrap_or_default()))
    }
}

/// How long a page is kept that a step changes.
fn keep(step: &Advance) -> (u64, u64) {
    step.keep_until.map_or((0, 0), |at| (at.0, KEEP_AT_LEAST.as_secs() * 1000))
}

/// Whether the entry begins as a record.
fn is_record(opened: &Opened) -> bool {
    opened.plan.as_ref() == Some(&Plan::named())
}

/// Begins an entry as a record, in place of `replaced` if there is one.
fn beginning(keys: &MessageKeys, opened: &Opened, replaced: Option<Vec<u8>>) -> Swap {
    let state = PartitionState { claim: opened.claim, ..PartitionState::default() };
    let head = record::head(opened.copy, &state, false);
    let behind = record::times(&opened.message_id, opened.accepted_at, opened.expires_at);
    let keep = (opened.keep_until.0, KEEP_AT_LEAST.as_secs() * 1000);
    Swap { behind, keep, ..Swap::of(keys, replaced.unwrap_or_default(), head) }
}

/// The step as a change of the record's head; none if it needs the rest of the record.
fn ordinary_step(keys: &MessageKeys, step: &Advance) -> Option<Swap> {
    let Advance { copy, partition: 0, from, to, leftovers, counts, .. } = step else { return None };
    let has_outcomes = counts.targeted == counts.outcomes.total();
    if !has_outcomes || leftovers.as_ref().is_some_and(|leftovers| !leftovers.is_empty()) {
        return None;
    }
    let (old, new) = (record::head(*copy, from, false), record::head(*copy, to, false));
    let (behind, keep) = (record::counts(counts), keep(step));
    Some(Swap { behind, keep, ..Swap::of(keys, old, new) })
}

#[async_trait]
impl Ledger for RedisIndex {
    async fn open(&self, opened: &Opened) -> Result<Entry, IndexError> {
        let (app, message) = (&opened.app_id, &opened.message_id);
        let keys = self.keys.message(message);
        let mut replaced = None;
        for _ in 0..TRIES {
            let stored = match is_record(opened) {
                true => match self.swap(beginning(&keys, opened, replaced.take())).await? {
                    Swapped::Done => return Ok(Entry::begin(opened)),
                    Swapped::Not(Some(record)) if !record::is_stub(&record) => {
                        Stored::Record(record)
                    }
                    Swapped::Not(_) => self.open_fields(&keys, opened, None).await?,
                },
                false => self.open_fields(&keys, opened, replaced.as_deref()).await?,
            };
            match stored {
                Stored::Entry(entry) => return Ok(*entry),
                Stored::Record(record) => {
                    let entry = decode(app, message, &record)?;
                    if !entry.is_replaced_by(opened) {
                        return Ok(entry);
                    }
                    replaced = Some(record);
                }
                Stored::Nothing => return Err(corrupt(message, "it has none")),
            }
        }
        Err(contended())
    }

    async fn begin_all(&self, entries: &[Opened]) -> Vec<Result<bool, IndexError>> {
        let swap = |opened: &Opened| {
            is_record(opened).then(|| {
                let keys = self.keys.message(&opened.message_id);
                beginning(&keys, opened, None)
            })
        };
        let answers = self.swap_some(entries.iter().map(swap).collect()).await;
        let begun = |answer| match answer {
            Some(answer) => Ok(answer? == Swapped::Done),
            None => Ok(false),
        };
        answers.into_iter().map(begun).collect()
    }

    async fn plan(&self, message: &MessageId, plan: &Plan) -> Result<Option<Plan>, IndexError> {
        // A record has the plan of named devices, and never asks for another.
        self.plan_fields(&self.keys.message(message), plan).await
    }

    async fn partition(
        &self,
        app: &AppId,
        message: &MessageId,
        number: u32,
    ) -> Result<Option<PartitionView>, IndexError> {
        let keys = self.keys.message(message);
        let ask = |pipe: &mut Pipeline| rich::ask_for_partition(pipe, &keys, number);
        match self.look(&keys, ask).await? {
            (Some(record), _) if !record::is_stub(&record) => {
                let entry = is_of(app, message).then(|| decode(app, message, &record));
                Ok(entry.transpose()?.map(|entry| entry.view(number)))
            }
            (_, fields) => rich::read_view(app, message, fields),
        }
    }

    async fn advance(
        &self,
        app: &AppId,
        message: &MessageId,
        step: &Advance,
    ) -> Result<Advanced, IndexError> {
        let keys = self.keys.message(message);
        if step.partition > 0 {
            // Only entries with fields have more than one.
            return match self.advance_fields(&keys, step).await? {
                Advanced::Unknown => {
                    Ok(self.advance_record(&keys, app, message, step, None).await?.0)
                }
                advanced => Ok(advanced),
            };
        }
        let known = match ordinary_step(&keys, step) {
            Some(swap) => match self.swap(swap).await? {
                Swapped::Done => return Ok(Advanced::Saved { recalled: false }),
                Swapped::Not(None) => return Ok(Advanced::Unknown),
                Swapped::Not(record) => record,
            },
            None => None,
        };
        let (advanced, had_fields) = self.advance_record(&keys, app, message, step, known).await?;
        if had_fields && step.to.is_ended() && matches!(advanced, Advanced::Saved { .. }) {
            // It is saved; that it takes more room than it might harms nothing.
            if let Err(error) = self.demote(&keys, app, message).await {
                debug!(%message, error = &error as &dyn std::error::Error, "an entry keeps its fields");
            }
        }
        Ok(advanced)
    }

    async fn advance_all(&self, steps: &[MessageStep]) -> Vec<Result<Advanced, IndexError>> {
        let swap = |one: &MessageStep| ordinary_step(&self.keys.message(&one.message), &one.step);
        let swapped = self.swap_some(steps.iter().map(swap).collect()).await;
        let answers =
            steps.iter().zip(swapped).map(async |(one, swapped)| match swapped.transpose()? {
                Some(Swapped::Done) => Ok(Advanced::Saved { recalled: false }),
                Some(Swapped::Not(None)) => Ok(Advanced::Unknown),
                Some(Swapped::Not(Some(_))) | None => {
                    self.advance(&one.app, &one.message, &one.step).await
                }
            });
        join_all(answers).await
    }

    async fn entry(&self, app: &AppId, message: &MessageId) -> Result<Option<Entry>, IndexError> {
        let keys = self.keys.message(message);
        let ask = |pipe: &mut Pipeline| {
            pipe.cmd("HGETALL").arg(keys.entry());
        };
        let entry = match self.look(&keys, ask).await? {
            (Some(record), _) if !record::is_stub(&record) => {
                is_of(app, message).then(|| decode(app, message, &record)).transpose()?
            }
            (_, fields) => rich::read(message, fields)?,
        };
        Ok(entry.filter(|entry| entry.app_id == *app))
    }

    async fn recall(
        &self,
        app: &AppId,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<RecallOutcome, IndexError> {
        let keys = self.keys.message(message);
        for _ in 0..TRIES {
            let record = match self.recall_fields(&keys, app, message, recall).await? {
                Stored::Nothing => return Ok(RecallOutcome::Unknown),
                Stored::Entry(entry) if entry.recalled_at.is_some() => {
                    return Ok(RecallOutcome::Recalled(*entry));
                }
                Stored::Entry(entry) => return Ok(RecallOutcome::AlreadyClosed(*entry)),
                Stored::Record(_) if !is_of(app, message) => return Ok(RecallOutcome::Unknown),
                Stored::Record(record) => record,
            };
            let mut entry = decode(app, message, &record)?;
            if entry.recalled_at.is_some() {
                return Ok(RecallOutcome::Recalled(entry));
            }
            if entry.is_closed() && !entry.ended_unsent() {
                return Ok(RecallOutcome::AlreadyClosed(entry));
            }
            entry.recalled_at = Some(recall.at);
            let short = record::encode(&entry).filter(|record| record.len() <= LONGEST);
            let saved = match short {
                Some(new) => self.swap(Swap::of(&keys, record, new)).await? == Swapped::Done,
                None => self.promote(&keys, &record, &entry, None).await?,
            };
            if saved {
                return Ok(RecallOutcome::Recalled(entry));
            }
        }
        Err(contended())
    }
}
