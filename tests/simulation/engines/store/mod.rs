//! The index's content, which all processes share. It survives them, though not always with its
//! last writes.
//!
//! - `devices`: the devices in their slots
//! - `losses`: the writes that it could lose, and those that it lost

mod devices;
mod losses;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry as Place},
    hash::{Hash, Hasher},
};

use push_model::{
    app::App,
    ids::{AppId, MessageId},
    ledger::{
        Advance, AdvanceOutcome, Entry, NewEntry, PartitionState, Plan, Recall, RecallOutcome,
        is_eviction_remembered, may_be_evicted,
    },
    open_broadcast::OpenBroadcast,
    pace::TheoreticalArrival,
    registration::GoneDevice,
    time::UnixMillis,
};
use push_tests::invariants::{Violation, equation, never_back};

use self::losses::{LostWrites, Undo};
use crate::{
    oracle::custody::{Custody, Touched},
    oracle::judge::counts,
    oracle::people::Person,
};

/// Shards of the device list; slots are assigned to them in turn.
const SHARDS: usize = 3;

/// A write, which takes effect now or later.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Open(Box<NewEntry>, Evictions),
    Plan(MessageId, Plan),
    Advance(MessageId, Box<Advance>),
    Remove(Box<GoneDevice>),
}

/// The evictions that a step looks for before it begins an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evictions {
    /// Those that the ledger remembers.
    Remembered,
    /// None: the message is delivered for the first time.
    Ignored,
}

impl Write {
    pub(crate) fn message(&self) -> Option<MessageId> {
        match self {
            Self::Open(opened, _) => Some(opened.message_id),
            Self::Plan(message, _) | Self::Advance(message, _) => Some(*message),
            Self::Remove(_) => None,
        }
    }
}

/// The answer to a write.
#[derive(Debug)]
pub(crate) enum Written {
    Open(Option<Box<Entry>>),
    Plan(Option<Plan>),
    Advance(AdvanceOutcome),
    Remove(bool),
}

/// The index's content.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// The device in each slot: an index into [`Store::people`].
    shards: [Vec<Option<usize>>; SHARDS],
    /// Every device that was ever registered.
    pub(crate) people: Vec<Person>,
    ledger: BTreeMap<MessageId, Entry>,
    journal: Vec<Undo>,
    lost_writes: BTreeMap<MessageId, LostWrites>,
    /// Jobs whose closed entries were evicted, and whether that is remembered.
    evicted: BTreeMap<(MessageId, u64), bool>,
    /// Messages whose whole entry was read by a closing check.
    looked_at: BTreeSet<MessageId>,
    /// When each recall took effect; none if the index lost it.
    recalled: BTreeMap<MessageId, Option<UnixMillis>>,
    /// The app, if it has a pace, and its theoretical arrival time.
    pub(crate) app: Option<App>,
    pub(crate) paid: TheoreticalArrival,
    /// The broadcasts that workers list as not finished.
    pub(crate) open_broadcasts: BTreeMap<MessageId, OpenBroadcast>,
}

impl Store {
    pub(crate) fn entry(&self, message: &MessageId) -> Option<&Entry> {
        self.ledger.get(message)
    }

    /// A worker reads a whole entry, to check whether it is closed.
    pub(crate) fn look(&mut self, message: &MessageId) -> Option<Entry> {
        self.looked_at.insert(*message);
        if let Some(lost) = self.lost_writes.get_mut(message) {
            lost.since_last_look = false;
        }
        self.ledger.get(message).cloned()
    }

    /// Returns true if a worker has read a whole entry, or tried to.
    pub(crate) fn was_looked_at(&self, message: &MessageId) -> bool {
        self.looked_at.contains(message)
    }

    /// Lets a write take effect; returns its answer and the rules that it broke.
    pub(crate) fn write(
        &mut self,
        write: &Write,
        custody: &mut Custody,
        now: UnixMillis,
    ) -> (Written, Option<Violation>) {
        match write {
            Write::Open(opened, evictions) => {
                let message = opened.message_id;
                let before = self.ledger.get(&message).cloned();
                let entry = self.begin(opened, *evictions);
                if entry.is_some() && before != entry {
                    self.note(message, before, Some(Touched::Message), None, 0);
                }
                (Written::Open(entry.map(Box::new)), None)
            }
            Write::Plan(message, plan) => {
                let before = self.ledger.get(message).cloned();
                let Some(entry) = self.ledger.get_mut(message) else {
                    return (Written::Plan(None), None);
                };
                let in_force = entry.plan.get_or_insert_with(|| plan.clone()).clone();
                if before.as_ref().is_some_and(|before| before.plan.is_none()) {
                    self.note(*message, before, Some(Touched::Message), None, 0);
                }
                (Written::Plan(Some(in_force)), None)
            }
            Write::Advance(message, step) => {
                let before = self.ledger.get(message).cloned();
                let Some(entry) = self.ledger.get_mut(message) else {
                    return (Written::Advance(AdvanceOutcome::Unknown), None);
                };
                let advanced = entry.advance(step);
                let mut broken = None;
                if let (AdvanceOutcome::Saved { .. }, Some(before)) = (advanced, before) {
                    let counts =
                        [&before, &*entry].map(|e| counts(e.targeted, &e.outcomes, e.pending()));
                    broken = equation(&counts[1]).or_else(|| never_back(&counts[0], &counts[1]));
                    let saved = custody.saved(*message, step);
                    let touched = Touched::Partition(step.partition);
                    let written_off = step.counts.outcomes.expired + step.counts.outcomes.recalled;
                    self.note(*message, Some(before), Some(touched), saved, written_off);
                }
                (Written::Advance(advanced), broken)
            }
            Write::Remove(gone) => (Written::Remove(self.remove_gone(gone, now)), None),
        }
    }

    fn begin(&mut self, opened: &NewEntry, evictions: Evictions) -> Option<Entry> {
        let message = opened.message_id;
        let known = self.ledger.get(&message).cloned();
        if let Some(known) = &known
            && !known.is_replaced_by(opened)
        {
            return Some(known.clone());
        }
        if evictions == Evictions::Remembered
            && self.remembers_eviction(&message, opened.dedup_nonce)
        {
            return None;
        }
        let entry = match known {
            Some(mut recalled) if recalled.dedup_nonce.is_none() => {
                recalled.begin_recalled(opened);
                recalled
            }
            _ => Entry::begin(opened),
        };
        self.ledger.insert(message, entry.clone());
        Some(entry)
    }

    /// A producer recalls a message.
    pub(crate) fn recall(
        &mut self,
        app: &AppId,
        message: MessageId,
        recall: &Recall,
    ) -> RecallOutcome {
        let before = self.ledger.get(&message).cloned();
        let outcome = match self.ledger.entry(message) {
            Place::Vacant(place) => match recall.early {
                None => RecallOutcome::Unknown,
                Some(early) => {
                    let entry = Entry::recalled_early(app.clone(), message, recall.at, &early);
                    RecallOutcome::Recalled(place.insert(entry).clone())
                }
            },
            Place::Occupied(place) if place.get().is_closed() && !place.get().ended_unsent() => {
                RecallOutcome::AlreadyClosed(place.get().clone())
            }
            Place::Occupied(mut place) => {
                place.get_mut().recalled_at.get_or_insert(recall.at);
                RecallOutcome::Recalled(place.get().clone())
            }
        };
        if let RecallOutcome::Recalled(_) = outcome {
            self.recalled.insert(message, Some(recall.at));
            self.note(message, before, None, None, 0);
        }
        outcome
    }

    /// Returns how long ago a recall of this message took effect.
    pub(crate) fn recalled_for(&self, message: &MessageId, now: UnixMillis) -> Option<u64> {
        let at = self.recalled.get(message).copied().flatten()?;
        Some(now.since(at).as_millis() as u64)
    }

    /// Returns true if there was a recall of this message.
    pub(crate) fn was_recalled(&self, message: &MessageId) -> bool {
        self.recalled.contains_key(message)
    }

    /// Evicts the closed entries of those pushes that are to named devices. Those of broadcasts stay until their
    /// message has expired.
    pub(crate) fn evict(&mut self, messages: impl IntoIterator<Item = MessageId>, now: UnixMillis) {
        for message in messages {
            let is_named = |entry: &&Entry| entry.plan == Some(Plan::named());
            let entry = self.ledger.get(&message).filter(is_named);
            let Some(entry) = entry.filter(|entry| may_be_evicted(entry, now)) else { continue };
            let job = (message, entry.dedup_nonce.unwrap_or_default());
            let is_remembered = entry.is_closed()
                && entry.expires_at.is_some_and(|at| is_eviction_remembered(at, now));
            self.ledger.remove(&message);
            self.journal.retain(|undo| undo.message != message);
            self.evicted.insert(job, is_remembered);
        }
    }

    /// Returns true if the entry of a message was evicted.
    pub(crate) fn was_evicted(&self, message: &MessageId) -> bool {
        self.evicted.keys().any(|(evicted, _)| evicted == message)
    }

    /// Returns true if the ledger remembers that it evicted the entry of this job.
    fn remembers_eviction(&self, message: &MessageId, dedup_nonce: u64) -> bool {
        self.evicted.get(&(*message, dedup_nonce)).copied().unwrap_or_default()
    }

    /// Adds the store's content to a fingerprint, claims without their random numbers.
    pub(crate) fn hash(&self, to: &mut impl Hasher) {
        self.shards.hash(to);
        self.recalled.values().filter(|at| at.is_some()).count().hash(to);
        for entry in self.ledger.values() {
            let Entry { dedup_nonce, recalled_at, plan, targeted, outcomes, retried, .. } = entry;
            (dedup_nonce, recalled_at.is_some(), plan.is_some(), targeted).hash(to);
            (outcomes.sent, &outcomes.failed, outcomes.expired, outcomes.recalled).hash(to);
            retried.hash(to);
            for (number, partition) in &entry.partitions {
                let PartitionState { claim, step, checkpoint } = &partition.state;
                (number, claim.map(|claim| claim.epoch), step, checkpoint).hash(to);
                for leftover in &partition.leftovers {
                    (leftover.attempt, leftover.unanswered, &leftover.clients).hash(to);
                }
            }
        }
    }
}
