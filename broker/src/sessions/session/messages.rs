//! The messages of one session: waiting ones, and those in flight, which the device has not acknowledged
//! yet.

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

/// The capacity that an empty queue may keep.
const SPARE_PLACES: usize = 16;

/// The bounds of each session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionLimits {
    /// The most waiting messages, without those in flight.
    pub(crate) messages: usize,
    /// The most memory of waiting messages and those in flight, in bytes.
    pub(crate) bytes: usize,
}

/// The messages of one session.
#[derive(Debug, Default)]
pub(super) struct Messages {
    waiting: VecDeque<Message>,
    in_flight: VecDeque<(NonZeroU16, Message)>,
    /// The number of those in flight that were sent over this connection. They come first.
    sent: usize,
    /// The memory of both, in bytes.
    bytes: usize,
    last_id: u16,
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) payload: Bytes,
    pub(super) expiry: Option<Expiry>,
    pub(super) memory: Reservation,
}

impl Messages {
    /// Keeps a message, with memory from `reserve`.
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
        // Waiting messages count as sent, so none of them makes room for a newer one.
        if is_full(self) {
            return Err(NotTaken::QueueFull);
        }
        let memory = reserve(payload.len()).ok_or(NotTaken::NoRoom)?;
        self.bytes += memory.bytes();
        // Copied, because the payload is a part of a larger buffer and would keep all of it in memory.
        let payload = Bytes::copy_from_slice(payload);
        self.waiting.push_back(Message { payload, expiry, memory });
        Ok(())
    }

    /// Appends a saved message.
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

    /// Returns all messages in sending order; those in flight with their identifier.
    pub(super) fn all(&self) -> impl Iterator<Item = (Option<NonZeroU16>, &Message)> {
        let in_flight = self.in_flight.iter().map(|(id, message)| (Some(*id), message));
        in_flight.chain(self.waiting.iter().map(|message| (None, message)))
    }

    /// Returns the next message in flight that this connection has not sent yet. At most `window` may be
    /// unacknowledged.
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

    /// Returns the next message with QoS 1. At most `window` of them may be in flight.
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

    /// Returns the next message with QoS 0, with its memory.
    pub(super) fn next_unacknowledged(&mut self, now: Clocks) -> Option<Outgoing> {
        let message = self.pop_unexpired(now)?;
        self.bytes -= message.memory.bytes();
        let packet = message.packet(None, false, now);
        Some(Outgoing { message: packet, memory: Some(message.memory) })
    }

    /// Removes the message with this identifier, if this connection sent it.
    pub(super) fn acknowledge(&mut self, id: NonZeroU16) -> Option<Reservation> {
        let found = self.in_flight.iter().take(self.sent).position(|(used, _)| *used == id)?;
        let (_, message) = self.in_flight.remove(found)?;
        self.sent -= 1;
        self.bytes -= message.memory.bytes();
        self.give_back_places();
        Some(message.memory)
    }

    /// Forgets which messages were sent, because the connection has ended.
    pub(super) fn begin_again(&mut self) {
        self.sent = 0;
    }

    pub(super) fn drop_expired(&mut self, now: Clocks) {
        let sent = self.sent;
        self.waiting.retain(|message| !message.is_expired(now));
        // Messages that this connection sent stay, because they may be acknowledged at any moment.
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

    /// Frees the capacity of an empty queue, which the session would otherwise keep for its lifetime.
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

    /// Returns a packet identifier that no message in flight has.
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
        let expires_in = self.expiry.map(|expiry| expiry.remaining(now));
        packets::Message { id, payload: self.payload.clone(), expires_in, dup }
    }
}
