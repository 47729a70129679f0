//! Packet identifiers, and what each of them stands for while the broker owes its PUBACK.

use std::{collections::VecDeque, num::NonZeroU16, time::Duration};

use tokio::time::Instant;

/// A message in flight: which part, and which of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InFlight {
    pub(super) part: usize,
    pub(super) place: usize,
    since: Instant,
}

/// As many identifiers as messages may be in flight. The one that rested longest is used next,
/// so that a late or repeated PUBACK is least likely to hit a new message.
#[derive(Debug)]
pub(super) struct Window {
    slots: Vec<Option<InFlight>>,
    free: VecDeque<NonZeroU16>,
}

impl Window {
    pub(super) fn new(size: NonZeroU16) -> Self {
        let free = (1..=size.get()).filter_map(NonZeroU16::new).collect();
        Self { slots: vec![None; usize::from(size.get())], free }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Takes an identifier, unless the window is full.
    pub(super) fn take(&mut self, part: usize, place: usize, since: Instant) -> Option<NonZeroU16> {
        let id = self.free.pop_front()?;
        if let Some(slot) = self.slots.get_mut(usize::from(id.get() - 1)) {
            *slot = Some(InFlight { part, place, since });
        }
        Some(id)
    }

    /// Gives an identifier back; `None` if nothing was in flight under it.
    pub(super) fn release(&mut self, id: NonZeroU16) -> Option<InFlight> {
        let in_flight = self.slots.get_mut(usize::from(id.get() - 1))?.take()?;
        self.free.push_back(id);
        Some(in_flight)
    }

    /// Whether a message has been in flight for longer than this.
    pub(super) fn is_overdue(&self, limit: Duration, now: Instant) -> bool {
        self.slots.iter().flatten().any(|m| now.duration_since(m.since) > limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(size: u16) -> Window {
        Window::new(NonZeroU16::new(size).unwrap())
    }

    #[tokio::test]
    async fn a_window_gives_out_each_identifier_once_until_it_is_released() {
        let (mut window, now) = (window(2), Instant::now());
        let first = window.take(7, 0, now).unwrap();
        let second = window.take(7, 1, now).unwrap();
        assert_ne!(first, second);
        assert!(window.is_full() && window.take(7, 2, now).is_none());
        assert_eq!(window.release(first).unwrap().place, 0);
        assert_eq!(window.release(first), None, "a repeated acknowledgement means nothing");
        assert_eq!(window.take(8, 0, now), Some(first));
    }

    #[tokio::test]
    async fn an_identifier_beyond_the_window_means_nothing() {
        assert_eq!(window(2).release(NonZeroU16::new(3).unwrap()), None);
    }

    #[tokio::test]
    async fn one_old_message_makes_the_window_overdue() {
        let (mut window, start) = (window(2), Instant::now());
        let limit = Duration::from_secs(1);
        let old = window.take(0, 0, start).unwrap();
        window.take(0, 1, start + limit);
        assert!(!window.is_overdue(limit, start + limit));
        assert!(window.is_overdue(limit, start + limit * 2));
        window.release(old);
        assert!(!window.is_overdue(limit, start + limit * 2));
    }
}
