//! What devices received and what a transport said of them: one for all processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
};

use push_fanout_worker::transport::Outcome;
use push_model::{
    ids::{ClientId, MessageId},
    ledger::RetryReason,
    time::UnixMillis,
};

/// How a transport answered for one device of one message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answers {
    /// How often the message was handed over for it.
    pub(crate) tries: u32,
    /// How many of these ended without an outcome.
    pub(crate) without: u32,
    /// One was refused. A delivery that another one took over from may answer after it.
    pub(crate) refused: bool,
    /// It received the message.
    pub(crate) received: bool,
    /// It was said to be gone.
    pub(crate) gone: bool,
}

/// What devices received.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    answers: BTreeMap<(MessageId, ClientId), Answers>,
    /// Messages that were still worked on when they were over.
    over: BTreeSet<MessageId>,
    /// The same, of all their copies.
    quite_over: BTreeSet<MessageId>,
    /// Devices that are told at their first try to be tried later.
    pub(crate) later_first: BTreeSet<ClientId>,
    /// When how many devices were sent to, whatever became of them.
    batches: Vec<(UnixMillis, usize)>,
    received: u64,
}

impl Inbox {
    /// A batch is sent.
    pub(crate) fn batch(&mut self, now: UnixMillis, devices: usize) {
        self.batches.push((now, devices));
    }

    /// When how many devices were sent to, in order.
    pub(crate) fn batches(&self) -> &[(UnixMillis, usize)] {
        &self.batches
    }

    /// The transport answers for a device.
    pub(crate) fn answer(
        &mut self,
        message: MessageId,
        client: &ClientId,
        outcome: Outcome,
        received: bool,
    ) {
        let answers = self.answers.entry((message, client.clone())).or_default();
        self.received += u64::from(received);
        answers.received |= received;
        answers.refused |= matches!(outcome, Outcome::Failed(_) | Outcome::Gone);
        answers.gone |= outcome == Outcome::Gone;
        match outcome {
            Outcome::Later(RetryReason::TransportAway, _) => return,
            Outcome::Later(..) | Outcome::Undecided => answers.without += 1,
            Outcome::Expired => {
                self.over.insert(message);
            }
            _ => {}
        }
        answers.tries += 1;
    }

    /// How the transport answered for a device.
    pub(crate) fn answers(&self, message: MessageId, client: &ClientId) -> Answers {
        self.answers.get(&(message, client.clone())).copied().unwrap_or_default()
    }

    /// Whether a message reached a device, or was refused by one.
    pub(crate) fn has_reached(&self, message: MessageId) -> bool {
        let mut answers = self.answers.iter().filter(|((id, _), _)| *id == message);
        answers.any(|(_, answers)| answers.received || answers.refused)
    }

    /// A message is over, and is still worked on; of all its copies that may be `quite` so.
    pub(crate) fn is_over(&mut self, message: MessageId, quite: bool) {
        self.over.insert(message);
        if quite {
            self.quite_over.insert(message);
        }
    }

    /// Whether a message was still worked on when all its copies were over.
    pub(crate) fn was_quite_over(&self, message: &MessageId) -> bool {
        self.quite_over.contains(message)
    }

    /// Whether a message was still worked on when it was over, or the transport said so of a
    /// device.
    pub(crate) fn was_over(&self, message: &MessageId) -> bool {
        self.over.contains(message)
    }

    /// Adds what devices received to a fingerprint.
    pub(crate) fn hash(&self, to: &mut impl Hasher) {
        self.received.hash(to);
        for answers in self.answers.values() {
            (answers.tries, answers.without, answers.refused).hash(to);
        }
    }
}
