//! The messages that devices received and the outcomes that transports gave, for all processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
};

use push_model::{
    device::{Device, Target},
    ids::{ClientId, MessageId},
    ledger::RetryReason,
    time::UnixMillis,
};
use push_transports::Outcome;

use crate::{faults::fault::Fault, oracle::people::Person};

/// A transport's answer for one device of one message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answers {
    /// Number of times that the message was handed to a transport for this device.
    pub(crate) tries: u32,
    /// Number of these calls that ended without an outcome.
    pub(crate) without: u32,
    /// One was refused. A superseded delivery may answer after the one that superseded it.
    pub(crate) refused: bool,
    /// It received the message.
    pub(crate) received: bool,
    /// The transport reported the device as gone.
    pub(crate) gone: bool,
    /// The report was about an earlier registration, so the device stays.
    pub(crate) kept: bool,
    /// It is not to be tried before this time, which its provider named.
    pub(crate) not_before: Option<UnixMillis>,
}

/// A provider's report that a device is gone.
#[derive(Debug, Clone)]
struct GoneReport {
    client: ClientId,
    token: Option<Box<str>>,
    /// Registrations from then on are not meant.
    since: UnixMillis,
}

/// The messages that devices received.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    answers: BTreeMap<(MessageId, ClientId), Answers>,
    /// Messages on which a worker still worked after they had expired or were recalled.
    over: BTreeSet<MessageId>,
    /// The same, where that holds for every acceptance of the push.
    quite_over: BTreeSet<MessageId>,
    /// The answers for some devices at their first tries, and the number of these.
    pub(crate) first: BTreeMap<ClientId, (Fault, u32)>,
    /// The devices that were reported as gone.
    gone: Vec<GoneReport>,
    /// The times of hand-overs and their numbers of devices, whatever their outcomes.
    batches: Vec<(UnixMillis, usize)>,
    received: u64,
}

impl Inbox {
    pub(crate) fn batch(&mut self, now: UnixMillis, devices: usize) {
        self.batches.push((now, devices));
    }

    /// The times of hand-overs and their numbers of devices, in order.
    pub(crate) fn batches(&self) -> &[(UnixMillis, usize)] {
        &self.batches
    }

    /// The provider reports a device with this address as gone, since this time.
    pub(crate) fn report_gone(&mut self, target: &Target, since: UnixMillis) {
        let Target { client_id: client, token, .. } = target.clone();
        self.gone.push(GoneReport { client, token, since });
    }

    /// Returns true if a report says that this registration of a device has ended.
    pub(crate) fn is_reported(&self, person: &Person) -> bool {
        let Device { client_id, token, .. } = &person.device;
        self.gone.iter().any(|report| {
            (&report.client, &report.token) == (client_id, token) && person.renewed < report.since
        })
    }

    /// The registration of a device stays although it is reported as gone.
    pub(crate) fn keeps(&mut self, message: MessageId, client: &ClientId) {
        self.answers.entry((message, client.clone())).or_default().kept = true;
    }

    /// The transport answers for a device.
    pub(crate) fn answer(
        &mut self,
        message: MessageId,
        client: &ClientId,
        outcome: Outcome,
        received: bool,
        now: UnixMillis,
    ) {
        let answers = self.answers.entry((message, client.clone())).or_default();
        self.received += u64::from(received);
        answers.received |= received;
        answers.refused |= matches!(outcome, Outcome::Failed(_) | Outcome::Gone { .. });
        answers.gone |= matches!(outcome, Outcome::Gone { .. });
        match outcome {
            Outcome::Later(RetryReason::TransportAway, _) => return,
            // It uses up no try.
            Outcome::Later(RetryReason::Busy, wait) => {
                answers.not_before = wait.map(|wait| now.plus(wait));
            }
            Outcome::Later(..) | Outcome::Undecided => answers.without += 1,
            Outcome::Expired => {
                self.over.insert(message);
            }
            _ => {}
        }
        answers.tries += 1;
    }

    /// Returns how the transport answered for a device.
    pub(crate) fn answers(&self, message: MessageId, client: &ClientId) -> Answers {
        self.answers.get(&(message, client.clone())).copied().unwrap_or_default()
    }

    /// Returns true if a message reached or was refused by any device.
    pub(crate) fn has_reached(&self, message: MessageId) -> bool {
        let mut answers = self.answers.iter().filter(|((id, _), _)| *id == message);
        answers.any(|(_, answers)| answers.received || answers.refused)
    }

    /// Notes that a worker works on a message that is over; `quite` if every acceptance of it is.
    pub(crate) fn is_over(&mut self, message: MessageId, quite: bool) {
        self.over.insert(message);
        if quite {
            self.quite_over.insert(message);
        }
    }

    /// Returns true if a worker worked on a message after all of its acceptances were over.
    pub(crate) fn was_quite_over(&self, message: &MessageId) -> bool {
        self.quite_over.contains(message)
    }

    /// Returns true if a worker worked on a message after it was over, or a transport reported it as
    /// expired.
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
