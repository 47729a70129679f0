//! A sub-batch: the part of a batch that one connection sends, and its progress.

use bytes::Bytes;
use bytestring::ByteString;
use push_model::{
    device::Target,
    ids::{AppId, MessageId},
    registration::RegistrationEpoch,
};
use tokio::{sync::oneshot, time::Instant};

use super::expiry::Expiry;
use crate::{outcome::Outcome, sending::Sending};

/// One outcome for each device of a sub-batch, in order; `None` for a device that was certainly not handed
/// over to the broker.
pub(super) type Outcomes = Vec<Option<Outcome>>;

/// A message to some of a batch's devices.
#[derive(Debug)]
pub(super) struct SubBatch {
    /// For the log.
    pub(super) message_id: MessageId,
    pub(super) recipients: Vec<Recipient>,
    pub(super) payload: Bytes,
    pub(super) expiry: Expiry,
    /// The permission to write more, and the place for outcomes as they come.
    pub(super) sending: Sending,
    /// The positions of the devices in the batch of that delivery.
    pub(super) positions: Vec<usize>,
    /// No device is handed over after this instant, because the broker is too slow for this delivery.
    pub(super) hand_over_until: Instant,
    /// The session stops waiting for acknowledgements at this instant.
    pub(super) answer_until: Instant,
    /// Takes the outcomes. If it is dropped without them, the outcomes of all devices are unknown.
    pub(super) reply: oneshot::Sender<Outcomes>,
}

/// A device as the broker knows it.
#[derive(Debug, Default)]
pub(super) struct Recipient {
    pub(super) topic: ByteString,
    pub(super) registration: RegistrationEpoch,
}

impl SubBatch {
    /// Returns the sub-batch unsent: no device was handed over.
    pub(super) fn give_back(self) {
        let answers = vec![None; self.recipients.len()];
        // If nothing waits for the answers the delivery was abandoned.
        let _ = self.reply.send(answers);
    }
}

/// Returns the topic that a device subscribes to.
pub(super) fn topic(app: &AppId, target: &Target) -> ByteString {
    let (app, client) = (app.as_str(), target.client_id.as_str());
    let mut topic = String::with_capacity("push//".len() + app.len() + client.len());
    topic.push_str("push/");
    topic.push_str(app);
    topic.push('/');
    topic.push_str(client);
    topic.into()
}

/// A sub-batch that a session works on.
#[derive(Debug)]
pub(super) struct SubBatchProgress {
    pub(super) sub_batch: SubBatch,
    answers: Outcomes,
    /// The first device that was neither encoded nor answered.
    next: usize,
    /// Devices without an answer.
    missing: usize,
}

impl SubBatchProgress {
    pub(super) fn new(sub_batch: SubBatch) -> Self {
        let missing = sub_batch.recipients.len();
        Self { answers: vec![None; missing], sub_batch, next: 0, missing }
    }

    /// Returns true if every device has its outcome.
    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Returns true if a device was neither encoded nor answered.
    pub(super) fn has_next(&self) -> bool {
        self.next < self.answers.len()
    }

    /// Returns true if nothing waits for the outcomes any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.sub_batch.reply.is_closed()
    }

    /// Takes the next device, with its position. Each can be taken once.
    pub(super) fn take_next(&mut self) -> Option<(usize, Recipient)> {
        let device = self.next;
        let recipient = std::mem::take(self.sub_batch.recipients.get_mut(device)?);
        self.next += 1;
        Some((device, recipient))
    }

    /// Enters the outcome of a device that has none yet.
    pub(super) fn decide(&mut self, device: usize, outcome: Outcome) {
        if let Some(open @ None) = self.answers.get_mut(device) {
            *open = Some(outcome);
            self.missing -= 1;
            if let Some(&position) = self.sub_batch.positions.get(device) {
                self.sub_batch.sending.answer(position, outcome);
            }
        }
    }

    /// Enters one outcome for all devices that were not encoded.
    pub(super) fn decide_rest(&mut self, outcome: Outcome) {
        for device in self.next..self.answers.len() {
            self.decide(device, outcome);
        }
        self.next = self.answers.len();
    }

    pub(super) fn answer(self) {
        // If nothing waits for the answers the delivery was abandoned.
        let _ = self.sub_batch.reply.send(self.answers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_topic_of_its_own() {
        let target = Target {
            client_id: "c:1".parse().unwrap(),
            transport: push_model::device::TransportKind::Mqtt,
            token: None,
            epoch: push_model::registration::RegistrationEpoch::default(),
            user_id: None,
            language: None,
        };
        assert_eq!(topic(&"my.app".parse().unwrap(), &target), "push/my.app/c:1");
    }
}
