//! What was handed over and is not saved yet: the only thing that may be repeated, and only if a
//! fault is the reason.
//!
//! A *hand-over* is one batch in one call of a transport. It is *saved* when the ledger takes the
//! step that counts it. Each device of a hand-over that is never saved received a message of
//! which no lasting record says so. That is excused
//! - if its process died before it was saved,
//! - if the index forgot what its partition had come to, before its worker looked again: that
//!   takes back the record, or makes it impossible,
//! - for one hand-over of each queue message that the broker took from a living process,
//! - for one hand-over of each queue message but one that was there when the index forgot what its
//!   partition had come to: by that the others had been stale copies.
//!
//! A device that the transport left undecided is excused as well. Nothing else is.

use std::collections::BTreeMap;

use push_model::{
    ids::{ClientId, MessageId},
    ledger::{Advance, Counts, PartitionState},
};

/// What each task saw of a message when it last looked.
type Looks = Vec<(Option<tokio::task::Id>, Look)>;

/// A worker's handler of one queue message.
pub(crate) type Handler = (u64, Option<tokio::task::Id>);

/// The step that saves a hand-over.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Saves {
    from: PartitionState,
    counts: Counts,
}

/// One batch in one call of a transport.
#[derive(Debug)]
struct HandOver {
    handler: Handler,
    message: MessageId,
    partition: u32,
    /// Those that received it, and whether the transport left them undecided.
    received: Vec<(ClientId, bool)>,
    saves: Option<Saves>,
    saved: bool,
    excused: bool,
}

/// The parts of a message that a fault touched.
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
    /// Which partition a handler asked the ledger for last.
    looks: BTreeMap<(u64, MessageId), Looks>,
    /// Queue messages that the broker took from a living process: how many hand-overs of a process
    /// and partition they excuse.
    cut_off: BTreeMap<(u64, MessageId, u32), u32>,
    /// Queue messages that can't be known for stale copies any more.
    unknown_stale: BTreeMap<(MessageId, u32), u32>,
}

/// What a handler knows of a partition.
#[derive(Debug, Clone, Copy)]
struct Look {
    partition: u32,
    /// The index forgot something of the partition after the look.
    outdated: bool,
    /// The handler was told of a conflict after the look.
    in_conflict: bool,
}

impl Custody {
    /// A handler learns what the ledger says of a partition.
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

    /// A handler is told that its step was in conflict with another.
    pub(crate) fn conflict(&mut self, handler: Handler, message: MessageId) {
        if let Some(look) = self.look(handler, message) {
            look.in_conflict = true;
        }
    }

    /// Whether it was, and has not looked again.
    pub(crate) fn is_in_conflict(&mut self, handler: Handler, message: MessageId) -> bool {
        self.look(handler, message).is_some_and(|look| look.in_conflict)
    }

    /// A batch was handed over, and these devices received it.
    pub(crate) fn hand_over(
        &mut self,
        handler: Handler,
        message: MessageId,
        received: Vec<(ClientId, bool)>,
    ) {
        let look = self.look(handler, message).copied();
        self.all.push(HandOver {
            handler,
            message,
            partition: look.map_or(0, |look| look.partition),
            received,
            saves: None,
            saved: false,
            excused: look.is_some_and(|look| look.outdated),
        });
    }

    /// A handler tries to take a step: if it counts something, then what was handed over last.
    pub(crate) fn tries(&mut self, handler: Handler, message: MessageId, step: &Advance) {
        let last = self.all.iter_mut().rev().find(|h| (h.handler, h.message) == (handler, message));
        if let Some(last) = last.filter(|h| h.saves.is_none())
            && step.counts != Counts::default()
        {
            last.saves = Some(Saves { from: step.from, counts: step.counts.clone() });
        }
    }

    /// The ledger took a step: which hand-over that saved. Two can look alike if the index forgot
    /// the claim in between; the later one is meant.
    pub(crate) fn saved(&mut self, message: MessageId, step: &Advance) -> Option<usize> {
        let is_it = |h: &HandOver| {
            let saves = h.saves.as_ref();
            h.message == message
                && h.partition == step.partition
                && saves.is_some_and(|s| s.from == step.from && s.counts == step.counts)
        };
        let number = self.all.iter().rposition(|h| !h.saved && is_it(h))?;
        self.all[number].saved = true;
        Some(number)
    }

    /// The index forgot the step that saved this, and is behind what is known of this part.
    pub(crate) fn forgotten(&mut self, saved: Option<usize>, message: MessageId, touched: Touched) {
        if let Some(number) = saved {
            self.all[number].saved = false;
        }
        let is_touched = |partition| match touched {
            Touched::Partition(number) => number == partition,
            Touched::Message => true,
        };
        for hand_over in &mut self.all {
            if hand_over.message == message && is_touched(hand_over.partition) && !hand_over.saved {
                hand_over.excused = true;
            }
        }
        for ((_, _), looks) in self.looks.iter_mut().filter(|((_, id), _)| *id == message) {
            for (_, look) in looks.iter_mut().filter(|(_, look)| is_touched(look.partition)) {
                look.outdated = true;
            }
        }
    }

    /// A process died.
    pub(crate) fn died(&mut self, process: u64) {
        for hand_over in &mut self.all {
            if hand_over.handler.0 == process && !hand_over.saved {
                hand_over.excused = true;
            }
        }
    }

    /// The broker took a queue message about these partitions from a living process.
    pub(crate) fn cut_off(&mut self, process: u64, parts: impl Iterator<Item = (MessageId, u32)>) {
        for (message, partition) in parts {
            *self.cut_off.entry((process, message, partition)).or_default() += 1;
        }
    }

    /// The index forgot what a partition had come to, while so many queue messages were about it.
    pub(crate) fn copies_at_loss(&mut self, message: MessageId, partition: u32, messages: u32) {
        let stale = self.unknown_stale.entry((message, partition)).or_default();
        *stale = (*stale).max(messages.saturating_sub(1));
    }

    /// How often each device received a message, and how many of these are excused.
    pub(crate) fn copies(&self, message: MessageId) -> BTreeMap<ClientId, (u32, u32)> {
        let mut copies: BTreeMap<ClientId, (u32, u32)> = BTreeMap::new();
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
            let is_excused = !hand_over.saved
                && (hand_over.excused
                    || use_up(cut_off.get_mut(&(hand_over.handler.0, part.0, part.1)))
                    || use_up(stale.get_mut(&part)));
            for (client, undecided) in &hand_over.received {
                let (received, excused) = copies.entry(client.clone()).or_default();
                *received += 1;
                *excused += u32::from(is_excused || *undecided);
            }
        }
        copies
    }
}
