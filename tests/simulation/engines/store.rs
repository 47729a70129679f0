//! The index's content, which all processes share. It survives them, though not always with its
//! last writes.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry as Place},
    hash::{Hash, Hasher},
};

use push_index::TransportExtent;
use push_model::{
    app::App,
    device::{Device, Target, TransportKind},
    ids::{AppId, ClientId, MessageId},
    ledger::{
        Advance, AdvanceOutcome, Entry, NewEntry, PartitionState, Plan, Recall, RecallOutcome,
        is_eviction_remembered, may_be_evicted,
    },
    open_broadcast::OpenBroadcast,
    pace::TheoreticalArrival,
    registration::RegistrationEpoch,
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use push_tests::invariants::{Violation, equation, never_back};

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
    Open(Box<NewEntry>),
    Plan(MessageId, Plan),
    Advance(MessageId, Box<Advance>),
    Remove(ClientId),
}

impl Write {
    /// The message that it is about.
    pub(crate) fn message(&self) -> Option<MessageId> {
        match self {
            Self::Open(opened) => Some(opened.message_id),
            Self::Plan(message, _) | Self::Advance(message, _) => Some(*message),
            Self::Remove(_) => None,
        }
    }
}

/// The answer to a write.
#[derive(Debug)]
pub(crate) enum Written {
    Open(Box<Entry>),
    Plan(Option<Plan>),
    Advance(AdvanceOutcome),
    Remove(bool),
}

/// The means to undo a write when the index loses it.
#[derive(Debug)]
struct Undo {
    message: MessageId,
    before: Option<Entry>,
    touched: Option<Touched>,
    /// The hand-over that it saved.
    saved: Option<usize>,
    /// Devices that it counted as expired or recalled.
    written_off: u64,
}

/// The index's losses about one message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LostWrites {
    pub(crate) something: bool,
    /// True if that was after the last closing check.
    pub(crate) since_last_look: bool,
    pub(crate) write_offs: u64,
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
    /// Registers a device in a new slot, or in a free one.
    pub(crate) fn register(&mut self, device: Device, now: UnixMillis, born: UnixMillis) {
        let number = self.people.len();
        self.people.push(Person { device, registered: now, born, removed: None });
        let free = self.shards.iter_mut().flatten().find(|slot| slot.is_none());
        match free {
            Some(slot) => *slot = Some(number),
            None => self.shards[number % SHARDS].push(Some(number)),
        }
    }

    /// Removes a device. False if there was none.
    pub(crate) fn remove(&mut self, client: &ClientId, now: UnixMillis) -> bool {
        let is_it = |person: &Person| person.device.client_id == *client;
        for slot in self.shards.iter_mut().flatten() {
            if let Some(number) = *slot
                && is_it(&self.people[number])
            {
                self.people[number].removed = Some(now);
                *slot = None;
                return true;
            }
        }
        false
    }

    /// All slots, as ranges.
    pub(crate) fn extent(&self) -> Vec<SlotRange> {
        let slots = |slots: &Vec<_>| u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let ranges = (0..).zip(&self.shards);
        let ranges = ranges.map(|(shard, s)| SlotRange { shard, from: 0, to: slots(s) });
        ranges.filter(|range| range.to > 0).collect()
    }

    /// The transports that devices have.
    pub(crate) fn transports(&self) -> Vec<TransportExtent> {
        let has = |transport: &TransportKind| {
            self.registered().any(|person| person.device.transport == *transport)
        };
        let of = |transport| TransportExtent { transport, ranges: self.extent() };
        TransportKind::ALL.into_iter().filter(has).map(of).collect()
    }

    fn registered(&self) -> impl Iterator<Item = &Person> {
        self.shards.iter().flatten().flatten().map(|&number| &self.people[number])
    }

    /// The transport and token of a device.
    pub(crate) fn find(&self, client: &ClientId) -> Option<Target> {
        let mut all = self.registered();
        all.find(|p| p.device.client_id == *client).map(target)
    }

    /// The devices of a slice that match, each with its slot.
    pub(crate) fn matching(
        &self,
        range: SlotRange,
        transport: TransportKind,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Vec<(u32, Target)> {
        let slots = (0..).zip(self.shards.get(range.shard as usize).into_iter().flatten());
        slots
            .filter(|(slot, _)| (range.from..range.to).contains(slot))
            .filter_map(|(slot, number)| Some((slot, &self.people[(*number)?])))
            .filter(|(_, person)| person.device.transport == transport)
            .filter(|(_, person)| person.born <= registered_by)
            .filter(|(_, person)| targeting.matches(&person.device.attributes))
            .map(|(slot, person)| (slot, target(person)))
            .collect()
    }

    /// The ledger of a message.
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
            Write::Open(opened) => {
                let message = opened.message_id;
                let before = self.ledger.get(&message).cloned();
                let entry = self.begin(opened).clone();
                if before.as_ref() != Some(&entry) {
                    self.note(message, before, Some(Touched::Message), None, 0);
                }
                (Written::Open(Box::new(entry)), None)
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
            Write::Remove(client) => (Written::Remove(self.remove(client, now)), None),
        }
    }

    fn begin(&mut self, opened: &NewEntry) -> &Entry {
        match self.ledger.entry(opened.message_id) {
            Place::Vacant(place) => place.insert(Entry::begin(opened)),
            Place::Occupied(place) => {
                let entry = place.into_mut();
                if entry.dedup_nonce.is_none() {
                    entry.begin_recalled(opened);
                } else if entry.is_replaced_by(opened) {
                    *entry = Entry::begin(opened);
                }
                entry
            }
        }
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

    fn note(
        &mut self,
        message: MessageId,
        before: Option<Entry>,
        touched: Option<Touched>,
        saved: Option<usize>,
        written_off: u64,
    ) {
        self.journal.push(Undo { message, before, touched, saved, written_off });
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
    pub(crate) fn remembers_eviction(&self, message: &MessageId, dedup_nonce: u64) -> bool {
        self.evicted.get(&(*message, dedup_nonce)).copied().unwrap_or_default()
    }

    /// Returns how many writes the index could lose.
    pub(crate) fn journal_len(&self) -> usize {
        self.journal.len()
    }

    /// The message that was written last.
    pub(crate) fn last_written(&self) -> Option<MessageId> {
        self.journal.last().map(|undo| undo.message)
    }

    /// The index loses its last writes.
    pub(crate) fn forget(
        &mut self,
        writes: usize,
        custody: &mut Custody,
    ) -> Vec<(MessageId, Touched)> {
        let mut touched_messages = Vec::new();
        for _ in 0..writes {
            let Some(undo) = self.journal.pop() else { break };
            match &undo.before {
                Some(entry) => self.ledger.insert(undo.message, entry.clone()),
                None => self.ledger.remove(&undo.message),
            };
            touched_messages.extend(undo.touched.map(|touched| (undo.message, touched)));
            self.lose(undo, custody);
        }
        touched_messages
    }

    /// The index loses the entry of a message.
    pub(crate) fn forget_entry(&mut self, message: MessageId, custody: &mut Custody) {
        let (lost, kept) =
            std::mem::take(&mut self.journal).into_iter().partition(|u| u.message == message);
        self.journal = kept;
        self.ledger.remove(&message);
        let lost: Vec<Undo> = lost;
        for undo in lost {
            self.lose(undo, custody);
        }
    }

    fn lose(&mut self, undo: Undo, custody: &mut Custody) {
        let Undo { message, touched, saved, written_off, .. } = undo;
        if self.ledger.get(&message).is_none_or(|entry| entry.recalled_at.is_none())
            && let Some(recalled) = self.recalled.get_mut(&message)
        {
            *recalled = None;
        }
        let Some(touched) = touched else { return };
        let lost = self.lost_writes.entry(message).or_default();
        lost.something = true;
        lost.since_last_look = true;
        lost.write_offs += written_off;
        custody.lost_write(saved, message, touched);
    }

    /// Returns what the index lost of a message.
    pub(crate) fn lost_writes(&self, message: &MessageId) -> LostWrites {
        self.lost_writes.get(message).copied().unwrap_or_default()
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

fn target(person: &Person) -> Target {
    let Device { client_id, transport, token, .. } = &person.device;
    let epoch = RegistrationEpoch::default();
    Target { client_id: client_id.clone(), transport: *transport, token: token.clone(), epoch }
}
