//! Batches that were handed to a transport and are not saved yet. Only these may be sent again, and
//! only because of a fault.
//!
//! A *hand-over* is one batch, in one call of each transport that its devices have. It is *saved* when the ledger takes the
//! step that counts it. Devices that this step has among the leftovers, because their answers had not come
//! yet, stay *open* until a later step of the same delivery settles them. If a hand-over is never saved, or a
//! device stays open, a message was received without a lasting record. That is excused
//! - if its process died before it was saved,
//! - if the index lost the state of its partition before its worker read it again: that takes back
//!   the record, or makes the save impossible,
//! - for one hand-over of each queue message that the broker took from a living process, and
//! - for one hand-over of each queue message but one that existed when the index lost the state of
//!   their partition, because that state had shown the others to be stale.
//!
//! An entry that was evicted before its queue message was acknowledged excuses no repeat.
//!
//! A device without an outcome is excused as well. Nothing else is.

use std::collections::BTreeMap;

use push_model::{
    ids::{ClientId, MessageId},
    ledger::{Advance, Counts, PartitionState},
};

/// The state of a message that each handler read last.
type Looks = Vec<(Option<tokio::task::Id>, Look)>;

/// A worker's task that handles one queue message.
pub(crate) type Handler = (u64, Option<tokio::task::Id>);

/// The step that saves a hand-over.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Saves {
    from: PartitionState,
    counts: Counts,
}

/// One batch.
#[derive(Debug)]
struct HandOver {
    handler: Handler,
    message: MessageId,
    partition: u32,
    /// The devices that received it, and whether the transport left them without an outcome.
    received: Vec<(ClientId, bool)>,
    saves: Option<Saves>,
    saved: bool,
    /// Devices whose answers had not come when it was saved. The ledger has them as leftovers.
    open: Vec<ClientId>,
    excused: bool,
}

impl HandOver {
    /// Returns true if the ledger has the outcome of every device.
    fn is_settled(&self) -> bool {
        self.saved && self.open.is_empty()
    }

    /// Returns true if the ledger has the outcome of this device.
    fn has_settled(&self, client: &ClientId) -> bool {
        self.saved && !self.open.contains(client)
    }

    /// Returns true if the delivery that saved the batch takes this step.
    fn is_followed_by(&self, message: MessageId, step: &Advance) -> bool {
        let owner = |state: &PartitionState| state.claim.map(|claim| claim.owner);
        let is_owner = |saves: &Saves| owner(&saves.from) == owner(&step.from);
        (self.message, self.partition) == (message, step.partition)
            && self.saves.as_ref().is_some_and(is_owner)
    }
}

/// The part of a message that a fault concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touched {
    /// One partition.
    Partition(u32),
    /// All of it.
    Message,
}

/// All hand-overs.
#[derive(Debug, Default)]
pub(crate) struct Custody {
    all: Vec<HandOver>,
    /// The partition that each handler read last.
    looks: BTreeMap<(u64, MessageId), Looks>,
    /// Number of excused hand-overs of each process and partition, because the broker took the
    /// queue message from the living process.
    cut_off: BTreeMap<(u64, MessageId, u32), u32>,
    /// Number of queue messages of each partition that can no longer be recognised as stale.
    unknown_stale: BTreeMap<(MessageId, u32), u32>,
}

/// A handler's knowledge about a partition.
#[derive(Debug, Clone, Copy)]
struct Look {
    partition: u32,
    /// The index lost writes about the partition after the read.
    outdated: bool,
    /// The handler was told of a conflict after the read.
    in_conflict: bool,
}

impl Custody {
    /// A handler has read a partition from the ledger.
    pub(crate) fn looked(&mut self, handler: Handler, message: MessageId, partition: u32) {
        let look = Look { partition, outdated: false, in_conflict: false };
        let looks = self.looks.entry((handler.0, message)).or_default();
        match looks.iter_mut().find(|(task, _)| *task == handler.1) {
            Some((_, known)) => *known = look,
            None => looks.push((handler.1, look)),
        }
    }

    fn look(&mut self, handler: Handler, message: MessageId) -> Option<&mut Look> {
        let looks = self.looks.get_mut(&(handler.0, message))?;
        looks.iter_mut().find(|(task, _)| *task == handler.1).map(|(_, look)| look)
    }

    /// A handler is told that its step conflicts with another one.
    pub(crate) fn conflict(&mut self, handler: Handler, message: MessageId) {
        if let Some(look) = self.look(handler, message) {
            look.in_conflict = true;
        }
    }

    /// Returns true if it was told so and has not read the partition again.
    pub(crate) fn is_in_conflict(&mut self, handler: Handler, message: MessageId) -> bool {
        self.look(handler, message).is_some_and(|look| look.in_conflict)
    }

    /// A batch was handed to a transport, and these devices received it.
    pub(crate) fn hand_over(
        &mut self,
        handler: Handler,
        message: MessageId,
        received: Vec<(ClientId, bool)>,
    ) {
        let look = self.look(handler, message).copied();
        let partition = look.map_or(0, |look| look.partition);
        // The devices of a batch may have several transports, each of which is called.
        let of_batch = |h: &&mut HandOver| {
            let is_open = h.saves.is_none() && !h.saved && h.partition == partition;
            let is_new = |client| h.received.iter().all(|(known, _)| known != client);
            is_open && received.iter().all(|(client, _)| is_new(client))
        };
        let last = self.all.iter_mut().rev().find(|h| (h.handler, h.message) == (handler, message));
        if let Some(batch) = last.filter(of_batch) {
            batch.excused |= look.is_some_and(|look| look.outdated);
            batch.received.extend(received);
            return;
        }
        self.all.push(HandOver {
            handler,
            message,
            partition,
            received,
            saves: None,
            saved: false,
            open: Vec::new(),
            excused: look.is_some_and(|look| look.outdated),
        });
    }

    /// A handler tries to save a step: if the step counts devices, they are those of its last
    /// hand-over.
    pub(crate) fn tries(&mut self, handler: Handler, message: MessageId, step: &Advance) {
        let last = self.all.iter_mut().rev().find(|h| (h.handler, h.message) == (handler, message));
        if let Some(last) = last.filter(|h| h.saves.is_none())
            && step.counts != Counts::default()
        {
            last.saves = Some(Saves { from: step.from, counts: step.counts.clone() });
        }
    }

    /// The ledger took a step; returns the hand-over that it saved. If the index lost a claim, two
    /// hand-overs can look alike; the later one is meant.
    pub(crate) fn saved(&mut self, message: MessageId, step: &Advance) -> Option<usize> {
        let is_it = |h: &HandOver| {
            let saves = h.saves.as_ref();
            h.message == message
                && h.partition == step.partition
                && saves.is_some_and(|s| s.from == step.from && s.counts == step.counts)
        };
        if let Some(leftovers) = &step.leftovers {
            let is_left = |client: &ClientId| leftovers.iter().any(|l| l.clients.contains(client));
            for earlier in self.all.iter_mut().filter(|h| h.is_followed_by(message, step)) {
                earlier.open.retain(is_left);
            }
        }
        let number = self.all.iter().rposition(|h| !h.saved && is_it(h))?;
        let hand_over = &mut self.all[number];
        hand_over.saved = true;
        let left = step.leftovers.iter().flatten().flat_map(|leftover| &leftover.clients);
        let is_open = |client: &&ClientId| {
            let mut received = hand_over.received.iter();
            received.any(|(received, undecided)| received == *client && !undecided)
        };
        hand_over.open = left.filter(is_open).cloned().collect();
        Some(number)
    }

    /// The index lost the step that saved this, and so its state is older than what is known.
    pub(crate) fn lost_write(
        &mut self,
        saved: Option<usize>,
        message: MessageId,
        touched: Touched,
    ) {
        if let Some(number) = saved {
            self.all[number].saved = false;
        }
        let is_touched = |partition| match touched {
            Touched::Partition(number) => number == partition,
            Touched::Message => true,
        };
        for hand_over in &mut self.all {
            if hand_over.message == message
                && is_touched(hand_over.partition)
                && !hand_over.is_settled()
            {
                hand_over.excused = true;
            }
        }
        for ((_, _), looks) in self.looks.iter_mut().filter(|((_, id), _)| *id == message) {
            for (_, look) in looks.iter_mut().filter(|(_, look)| is_touched(look.partition)) {
                look.outdated = true;
            }
        }
    }

    pub(crate) fn died(&mut self, process: u64) {
        for hand_over in &mut self.all {
            if hand_over.handler.0 == process && !hand_over.is_settled() {
                hand_over.excused = true;
            }
        }
    }

    /// The broker took a queue message that concerns these partitions from a living process.
    pub(crate) fn cut_off(&mut self, process: u64, parts: impl Iterator<Item = (MessageId, u32)>) {
        for (message, partition) in parts {
            *self.cut_off.entry((process, message, partition)).or_default() += 1;
        }
    }

    /// The index lost the state of a partition while this many queue messages concerned it.
    pub(crate) fn messages_at_loss(&mut self, message: MessageId, partition: u32, messages: u32) {
        let stale = self.unknown_stale.entry((message, partition)).or_default();
        *stale = (*stale).max(messages.saturating_sub(1));
    }

    /// Returns how often each device received a message, and how many of these receipts are excused.
    pub(crate) fn receipts(&self, message: MessageId) -> BTreeMap<ClientId, (u32, u32)> {
        let mut receipts: BTreeMap<ClientId, (u32, u32)> = BTreeMap::new();
        let (mut cut_off, mut stale) = (self.cut_off.clone(), self.unknown_stale.clone());
        let use_up = |left: Option<&mut u32>| match left {
            None | Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        };
        for hand_over in self.all.iter().filter(|h| h.message == message) {
            let part = (message, hand_over.partition);
            let key = (hand_over.handler.0, part.0, part.1);
            // Open devices are in flight beside the batch that is sent next.
            let was_taken = |cut_off: &mut BTreeMap<_, u32>| match hand_over.saved {
                true => self.cut_off.contains_key(&key),
                false => use_up(cut_off.get_mut(&key)),
            };
            let is_excused = !hand_over.is_settled()
                && (hand_over.excused
                    || was_taken(&mut cut_off)
                    || !hand_over.saved && use_up(stale.get_mut(&part)));
            for (client, undecided) in &hand_over.received {
                let (received, excused) = receipts.entry(client.clone()).or_default();
                *received += 1;
                let repeats = is_excused && !hand_over.has_settled(client);
                *excused += u32::from(repeats || *undecided);
            }
        }
        receipts
    }
}
