//! The work of a session: sub-batches that share its window in turns, and the acknowledgements that it waits
//! for. It does no input or output, and times are passed in.
//!
//! A session carries the sub-batches of several deliveries, and none of them may delay another:
//! - Each sub-batch encodes [`QUANTUM`] messages before it is the next sub-batch's turn.
//! - A message that the broker lost is given up alone ([`SKIPPED_LIMIT`]).
//! - A sub-batch is given up when its delivery has no time left.

use std::{collections::VecDeque, num::NonZeroU16, time::Duration};

use push_model::ledger::{FailReason, RetryReason};
use rmqtt_codec::v5::PublishAck;
use slab::Slab;
use tokio::time::Instant;
use tracing::debug;

use super::{
    end::SessionEnd,
    output::Output,
    packet,
    window::{InFlight, Window},
};
use crate::{
    mqtt::sub_batch::{Recipient, SubBatch, SubBatchProgress},
    outcome::Outcome,
    sending::Proceed,
};

/// The most sub-batches that a session works on at a time; more wait in its channel.
const MAX_SUB_BATCHES: usize = 64;

/// Messages of one sub-batch before it is the next sub-batch's turn.
const QUANTUM: usize = 32;

/// The time for which the session waits for a message after a later one was acknowledged, in acknowledgement
/// time-outs. A broker that acknowledges in order, as MQTT requires, never reaches it.
const SKIPPED_LIMIT: u32 = 3;

/// The work of a session.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) output: Output,
    window: Window,
    ack_timeout: Duration,
    /// True if the broker asked for the registration of each message's device
    /// ([`REGISTRATION`](push_model::mqtt::REGISTRATION)).
    names_registrations: bool,
    sub_batches: Slab<SubBatchProgress>,
    /// The keys of the sub-batches with devices left to encode; the first is next.
    rotation: VecDeque<usize>,
    /// True if all of these wait until they may write more.
    paused: bool,
}

impl Exchange {
    pub(super) fn new(
        output: Output,
        window: NonZeroU16,
        ack_timeout: Duration,
        names_registrations: bool,
        now: Instant,
    ) -> Self {
        Self {
            output,
            window: Window::new(window, now),
            ack_timeout,
            names_registrations,
            sub_batches: Slab::new(),
            rotation: VecDeque::new(),
            paused: false,
        }
    }

    /// Returns true if another sub-batch may be begun.
    pub(super) fn has_room(&self) -> bool {
        self.sub_batches.len() < MAX_SUB_BATCHES
    }

    /// Returns the time at which the broker last acknowledged something, or was last sent to while nothing was
    /// in flight.
    pub(super) fn moved(&self) -> Instant {
        self.window.moved()
    }

    pub(super) fn begin(&mut self, sub_batch: SubBatch) {
        let progress = SubBatchProgress::new(sub_batch);
        if progress.is_complete() {
            progress.answer();
        } else {
            self.rotation.push_back(self.sub_batches.insert(progress));
        }
    }

    /// Returns true if something waits until it may be written ([`Proceed::Pause`]). Then encode again soon.
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Encodes as much as fits into window and buffer, a quantum of each sub-batch in turn.
    pub(super) fn encode(&mut self, now: Instant) {
        let mut paused = 0;
        while !self.output.is_full()
            && self.window.next_id().is_some()
            && paused < self.rotation.len()
        {
            let Some(key) = self.rotation.pop_front() else { break };
            paused = if self.encode_quantum(key, now) { 0 } else { paused + 1 };
        }
        self.paused = paused > 0;
    }

    /// Returns false if the sub-batch has to pause.
    fn encode_quantum(&mut self, key: usize, now: Instant) -> bool {
        let Some(progress) = self.sub_batches.get_mut(key) else { return true };
        let next = next_step(progress, now);
        if let NextStep::Encode { expiry: seconds } = next {
            for _ in 0..QUANTUM {
                let Some(id) = self.window.next_id() else { break };
                let Some((device, recipient)) = progress.take_next() else { break };
                let Recipient { topic, registration } = recipient;
                let payload = progress.sub_batch.payload.clone();
                let named = self.names_registrations.then_some(registration);
                let properties = packet::properties(seconds, named);
                let packet = packet::publish(id, topic, payload, properties);
                match self.output.add(packet, now) {
                    Ok(end) => self.window.add(InFlight { sub_batch: key, device, end }, now),
                    Err(error) => {
                        let message_id = progress.sub_batch.message_id;
                        debug!(%message_id, %error, "message is larger than the broker takes");
                        progress.decide(device, Outcome::Failed(FailReason::Refused));
                    }
                }
            }
        }
        if progress.has_next() {
            self.rotation.push_back(key);
        }
        self.answer_if_complete(key);
        next != NextStep::Pause
    }

    pub(super) fn acknowledge(&mut self, ack: &PublishAck, now: Instant) {
        if let Some(message) = self.window.acknowledge(ack.packet_id, now) {
            self.decide(message, packet::outcome(ack));
        }
    }

    fn decide(&mut self, message: InFlight, outcome: Outcome) {
        if let Some(progress) = self.sub_batches.get_mut(message.sub_batch) {
            progress.decide(message.device, outcome);
            self.answer_if_complete(message.sub_batch);
        }
    }

    fn answer_if_complete(&mut self, key: usize) {
        if self.sub_batches.get(key).is_some_and(SubBatchProgress::is_complete) {
            self.sub_batches.remove(key).answer();
        }
    }

    /// Gives up messages and sub-batches that have waited too long.
    ///
    /// # Errors
    /// If the session should end.
    pub(super) fn check(&mut self, now: Instant) -> Result<(), SessionEnd> {
        for lost in self.window.give_up_skipped(self.ack_timeout * SKIPPED_LIMIT, now) {
            self.decide(lost, Outcome::Undecided);
        }
        // `encode` does not reach sub-batches that wait for the window.
        let sub_batches = &mut self.sub_batches;
        self.rotation.retain(|&key| {
            sub_batches
                .get_mut(key)
                .is_some_and(|progress| next_step(progress, now) != NextStep::Done)
        });
        let keys: Vec<usize> = self.sub_batches.iter().map(|(key, _)| key).collect();
        for key in keys {
            if self
                .sub_batches
                .get(key)
                .is_some_and(|progress| now >= progress.sub_batch.answer_until)
            {
                for late in self.window.give_up_sub_batch(key) {
                    self.decide(late, Outcome::Undecided);
                }
            }
            self.answer_if_complete(key);
        }
        if self.window.is_stalled(self.ack_timeout, now) {
            return Err(SessionEnd::Silent(self.ack_timeout));
        }
        if self.window.should_be_renewed() {
            return Err(SessionEnd::Lost);
        }
        Ok(())
    }

    /// Answers all sub-batches when the session has ended: devices that were handed over are undecided, the
    /// others are given back.
    pub(super) fn end(&mut self) {
        let written = self.output.written();
        for message in self.window.in_flight().filter(|message| message.end <= written) {
            if let Some(progress) = self.sub_batches.get_mut(message.sub_batch) {
                progress.decide(message.device, Outcome::Undecided);
            }
        }
        self.rotation.clear();
        self.sub_batches.drain().for_each(SubBatchProgress::answer);
    }
}

/// The next step for the devices of a sub-batch that were not encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    /// They may be encoded, with this message expiry interval.
    Encode { expiry: u32 },
    /// They may be written later.
    Pause,
    /// Each has an outcome.
    Done,
}

/// Decides the next step for a sub-batch. For [`NextStep::Done`] it also gives every device that was not
/// encoded its outcome.
fn next_step(progress: &mut SubBatchProgress, now: Instant) -> NextStep {
    let sub_batch = &progress.sub_batch;
    let proceed = sub_batch.sending.may_send_more();
    let rest = match (sub_batch.expiry.interval(now, sub_batch.sending.now()), proceed) {
        (None, _) => Outcome::Expired,
        (Some(_), Proceed::Stop(reason)) => reason.outcome(),
        (Some(_), _) if now >= sub_batch.hand_over_until => Outcome::Later(RetryReason::Busy, None),
        // Nothing reads these outcomes.
        (Some(_), _) if progress.is_abandoned() => Outcome::Later(RetryReason::Error, None),
        (Some(_), Proceed::Pause) => return NextStep::Pause,
        (Some(expiry), Proceed::Yes) => return NextStep::Encode { expiry },
    };
    progress.decide_rest(rest);
    NextStep::Done
}
