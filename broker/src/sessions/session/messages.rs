//! The messages of one session: those that wait, and those that are in flight, which the device has
//! not acknowledged yet.

use std::{collections::VecDeque, num::NonZeroU16};

use bytes::Bytes;

use super::{
    super::memory::{self, Reservation},
    NotTaken, Outgoing,
};
use crate::{
    clocks::{Clocks, Expiry},
    packets,
};

/// Places that an empty queue may keep for the messages to come.
const SPARE_PLACES: usize = 16;

/// The bounds of each session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionLimits {
    /// Messages that wait, without those in flight; beyond that a new one is refused.
    pub(crate) messages: usize,
    /// Their memory together with those in flight, in bytes.
    pub(crate) bytes: usize,
}

/// The messages of one session.
#[derive(Debug, Default)]
pub(super) struct Messages {
    waiting: VecDeque<Message>,
    in_flight: VecDeque<(NonZeroU16, Message)>,
    /// How many of those in flight were sent over this connection: the first ones.
    sent: usize,
    /// The memory of both, in bytes.
    bytes: usize,
    last_id: u16,
}

/// One message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) payload: Bytes,
    pub(super) expiry: Option<Expiry>,
    pub(super) memory: Reservation,
}

impl Messages {
    /// Keeps a message, whose memory `reserve` gets.
    pub(super) fn put(
        &mut self,
        payload: &[u8],
        expiry: Option<Expiry>,
        limits: SessionLimits,
        now: Clocks,
        reserve: impl FnOnce(usize) -> Option<Reservation>,
    ) -> Result<(), NotTaken> {
        let size = memory::size(payload.len());
        let is_full = |messages: &Self| {
            messages.waiting.len() >= limits.messages || messages.bytes + size > limits.bytes
        };
        if is_full(self) {
            self.drop_expired(now);
        }
        // Those that wait count as sent, so none of them makes room for a newer one.
        if is_full(self) {
            return Err(NotTaken::QueueFull);
        }
        let memory = reserve(payload.len()).ok_or(NotTaken::NoRoom)?;
        self.bytes += memory.bytes();
        // A copy: the payload is a part of a larger buffer, which it would keep in memory.
        let payload = Bytes::copy_from_slice(payload);
        self.waiting.push_back(Message { payload, expiry, memory });
        Ok(())
    }

    /// Adds a message that was saved, behind those that are here.
    pub(super) fn restore(&mut self, id: Option<NonZeroU16>, message: Message) {
        self.bytes += message.memory.bytes();
        match id {
            Some(id) => {
                self.last_id = id.get();
                self.in_flight.push_back((id, message));
            }
            None => self.waiting.push_back(message),
        }
    }

    /// All messages, in the order in which they are sent; those in flight with their identifier.
    pub(super) fn all(&self) -> impl Iterator<Item = (Option<NonZeroU16>, &Message)> {
        let in_flight = self.in_flight.iter().map(|(id, message)| (Some(*id), message));
        in_flight.chain(self.waiting.iter().map(|message| (None, message)))
    }

    /// The next of those in flight that this connection has not sent yet: at most `window` of them
    /// may be unacknowledged.
    pub(super) fn next_again(&mut self, window: NonZeroU16, now: Clocks) -> Option<Outgoing> {
        if self.sent >= usize::from(window.get()) {
            return None;
        }
        while self.in_flight.get(self.sent)?.1.is_expired(now) {
            let (_, expired) = self.in_flight.remove(self.sent)?;
            self.bytes -= expired.memory.bytes();
        }
        let (id, message) = self.in_flight.get(self.sent)?;
        let packet = message.packet(Some(*id), true, now);
        self.sent += 1;
        Some(Outgoing { message: packet, memory: None })
    }

    /// The next one that is to be acknowledged, of which at most `window` may be in flight.
    pub(super) fn next(&mut self, window: NonZeroU16, now: Clocks) -> Option<Outgoing> {
        if let Some(again) = self.next_again(window, now) {
            return Some(again);
        }
        if self.in_flight.len() >= usize::from(window.get()) {
            return None;
        }
        let message = self.pop_unexpired(now)?;
        let id = self.unused_id();
        let packet = message.packet(Some(id), false, now);
        self.in_flight.push_back((id, message));
        self.sent += 1;
        Some(Outgoing { message: packet, memory: None })
    }

    /// The next one that is sent without an acknowledgement, and its memory.
    pub(super) fn next_unacknowledged(&mut self, now: Clocks) -> Option<Outgoing> {
        let message = self.pop_unexpired(now)?;
        self.bytes -= message.memory.bytes();
        let packet = message.packet(None, false, now);
        Some(Outgoing { message: packet, memory: Some(message.memory) })
    }

    /// Takes out the message with this identifier, if it was sent over this connection.
    pub(super) fn acknowledge(&mut self, id: NonZeroU16) -> Option<Reservation> {
        let found = self.in_flight.iter().take(self.sent).position(|(used, _)| *used == id)?;
        let (_, message) = self.in_flight.remove(found)?;
        self.sent -= 1;
        self.bytes -= message.memory.bytes();
        self.give_back_places();
        Some(message.memory)
    }

    /// The connection over which they were sent has ended.
    pub(super) fn begin_again(&mut self) {
        self.sent = 0;
    }

    pub(super) fn drop_expired(&mut self, now: Clocks) {
        let sent = self.sent;
        self.waiting.retain(|message| !message.is_expired(now));
        // What was sent over this connection may be acknowledged at any moment and stays.
        let mut place = 0;
        self.in_flight.retain(|(_, message)| {
            place += 1;
            place <= sent || !message.is_expired(now)
        });
        self.bytes = self.all().map(|(_, message)| message.memory.bytes()).sum();
        if self.waiting.len() + SPARE_PLACES < self.waiting.capacity() / 2 {
            self.waiting.shrink_to_fit();
        }
        self.give_back_places();
    }

    /// An empty queue must not keep the places that it once needed for as long as the session lasts.
    fn give_back_places(&mut self) {
        if self.in_flight.is_empty() && self.in_flight.capacity() > SPARE_PLACES {
            self.in_flight = VecDeque::new();
        }
    }

    fn pop_unexpired(&mut self, now: Clocks) -> Option<Message> {
        loop {
            let message = self.pop_waiting()?;
            if !message.is_expired(now) {
                return Some(message);
            }
            self.bytes -= message.memory.bytes();
        }
    }

    fn pop_waiting(&mut self) -> Option<Message> {
        let message = self.waiting.pop_front()?;
        if self.waiting.is_empty() && self.waiting.capacity() > SPARE_PLACES {
            self.waiting = VecDeque::new();
        }
        Some(message)
    }

    /// A packet identifier that no message in flight has.
    fn unused_id(&mut self) -> NonZeroU16 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if let Some(id) = NonZeroU16::new(self.last_id)
                && self.in_flight.iter().all(|(used, _)| *used != id)
            {
                return id;
            }
        }
    }
}

impl Message {
    pub(super) fn is_expired(&self, now: Clocks) -> bool {
        self.expiry.is_some_and(|expiry| expiry.is_over(now))
    }

    fn packet(&self, id: Option<NonZeroU16>, dup: bool, now: Clocks) -> packets::Message {
        let expires_in = self.expiry.map(|expiry| expiry.left(now));
        packets::Message { id, payload: self.payload.clone(), expires_in, dup }
    }
}
