//! Packet identifiers, and the message in flight under each until its PUBACK.
//!
//! A broker acknowledges messages in the order in which they were sent (MQTT 5, section 4.6). A
//! message is *skipped* when one that was sent after it has been acknowledged. If the PUBACK of a
//! skipped message does not follow, the message is lost: the broker has dropped it, or its PUBACK.
//! The identifier of a lost message is not used again in this session, because the broker may still
//! count it as in flight, and a late PUBACK must not be taken for that of another message.

use std::{collections::VecDeque, num::NonZeroU16, time::Duration};

use tokio::time::Instant;

/// A message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InFlight {
    /// The key of its sub-batch.
    pub(super) sub_batch: usize,
    /// The position of its device in the sub-batch.
    pub(super) device: usize,
    /// The bytes that the session had encoded up to the end of this message. They order the messages, and once
    /// that many are written, this one is handed over.
    pub(super) end: u64,
}

#[derive(Debug, Clone, Copy)]
enum IdState {
    Free,
    InFlight {
        message: InFlight,
        /// The time at which it was first seen to be skipped.
        skipped: Option<Instant>,
    },
    Lost,
}

/// The identifiers of one session, one for each message that may be in flight. The longest-unused one is used
/// next, so that a late or repeated PUBACK is least likely to hit a new message.
#[derive(Debug)]
pub(super) struct Window {
    states: Vec<IdState>,
    free: VecDeque<NonZeroU16>,
    in_flight: usize,
    lost: usize,
    /// [`InFlight::end`] of the newest message that was acknowledged.
    newest_acknowledged: u64,
    /// The time of the last acknowledgement, or of the last message added to an empty window.
    moved: Instant,
}

impl Window {
    pub(super) fn new(size: NonZeroU16, now: Instant) -> Self {
        Self {
            states: vec![IdState::Free; usize::from(size.get())],
            free: (1..=size.get()).filter_map(NonZeroU16::new).collect(),
            in_flight: 0,
            lost: 0,
            newest_acknowledged: 0,
            moved: now,
        }
    }

    /// Returns the identifier that [`Self::add`] will use. Returns `None` if the window is full, or if so
    /// many of its identifiers are lost that the session should end as soon as nothing is in flight.
    pub(super) fn next_id(&self) -> Option<NonZeroU16> {
        self.free.front().copied().filter(|_| self.lost * 2 < self.states.len())
    }

    /// Puts a message in flight under the next identifier.
    pub(super) fn add(&mut self, message: InFlight, now: Instant) {
        let Some(id) = self.free.pop_front() else { return };
        if self.in_flight == 0 {
            self.moved = now;
        }
        self.in_flight += 1;
        self.states[index(id)] = IdState::InFlight { message, skipped: None };
    }

    /// Returns the message that a PUBACK with this identifier acknowledges. Returns `None` for a repeated or
    /// late PUBACK, and for an identifier that is not in use.
    pub(super) fn acknowledge(&mut self, id: NonZeroU16, now: Instant) -> Option<InFlight> {
        let state = self.states.get_mut(index(id))?;
        let acknowledged = match std::mem::replace(state, IdState::Free) {
            IdState::Free => return None,
            IdState::Lost => {
                self.lost -= 1;
                None
            }
            IdState::InFlight { message, .. } => {
                self.in_flight -= 1;
                self.newest_acknowledged = self.newest_acknowledged.max(message.end);
                Some(message)
            }
        };
        self.moved = now;
        self.free.push_back(id);
        acknowledged
    }

    /// Returns the time of the last acknowledgement, or of the last message added to an empty window.
    pub(super) fn moved(&self) -> Instant {
        self.moved
    }

    /// Returns true if something is in flight and the window has not moved for longer than `limit`.
    pub(super) fn is_stalled(&self, limit: Duration, now: Instant) -> bool {
        self.in_flight > 0 && now.duration_since(self.moved) > limit
    }

    /// Returns true if messages were lost and none is in flight. Then a new session disturbs no message and
    /// makes the lost identifiers available again.
    pub(super) fn should_be_renewed(&self) -> bool {
        self.lost > 0 && self.in_flight == 0
    }

    /// Gives up the messages that have been seen skipped for longer than `limit`.
    pub(super) fn give_up_skipped(&mut self, limit: Duration, now: Instant) -> Vec<InFlight> {
        let newest = self.newest_acknowledged;
        self.give_up(|message, skipped| {
            if message.end > newest {
                return false;
            }
            now.duration_since(*skipped.get_or_insert(now)) > limit
        })
    }

    /// Gives up the messages of this sub-batch.
    pub(super) fn give_up_sub_batch(&mut self, sub_batch: usize) -> Vec<InFlight> {
        self.give_up(|message, _| message.sub_batch == sub_batch)
    }

    fn give_up(
        &mut self,
        is_lost: impl Fn(&InFlight, &mut Option<Instant>) -> bool,
    ) -> Vec<InFlight> {
        let mut given_up = Vec::new();
        for state in &mut self.states {
            if let IdState::InFlight { message, skipped } = state
                && is_lost(message, skipped)
            {
                given_up.push(*message);
                *state = IdState::Lost;
            }
        }
        self.in_flight -= given_up.len();
        self.lost += given_up.len();
        given_up
    }

    pub(super) fn in_flight(&self) -> impl Iterator<Item = &InFlight> {
        self.states.iter().filter_map(|state| match state {
            IdState::InFlight { message, .. } => Some(message),
            IdState::Free | IdState::Lost => None,
        })
    }
}

fn index(id: NonZeroU16) -> usize {
    usize::from(id.get() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    fn window(size: u16) -> Window {
        Window::new(NonZeroU16::new(size).unwrap(), Instant::now())
    }

    /// Sends the message with this number; messages are sent in the order of their numbers.
    fn send(window: &mut Window, number: usize, now: Instant) -> Option<NonZeroU16> {
        let id = window.next_id()?;
        window.add(InFlight { sub_batch: number, device: 0, end: number as u64 }, now);
        Some(id)
    }

    fn numbers(messages: &[InFlight]) -> Vec<usize> {
        messages.iter().map(|message| message.sub_batch).collect()
    }

    #[tokio::test]
    async fn a_window_gives_out_each_identifier_once_until_it_is_acknowledged() {
        let (mut window, now) = (window(2), Instant::now());
        let first = send(&mut window, 1, now).unwrap();
        let second = send(&mut window, 2, now).unwrap();
        assert_ne!(first, second);
        assert_eq!(send(&mut window, 3, now), None);
        assert_eq!(window.acknowledge(first, now).unwrap().sub_batch, 1);
        assert_eq!(window.acknowledge(first, now), None, "a repeated acknowledgement");
        assert_eq!(send(&mut window, 3, now), Some(first));
    }

    #[tokio::test]
    async fn an_identifier_beyond_the_window_means_nothing() {
        let beyond = NonZeroU16::new(3).unwrap();
        assert_eq!(window(2).acknowledge(beyond, Instant::now()), None);
    }

    #[tokio::test]
    async fn a_window_is_stalled_only_if_nothing_was_acknowledged_for_too_long() {
        let (mut window, start) = (window(3), Instant::now());
        assert!(!window.is_stalled(LIMIT, start + LIMIT * 9), "an idle window is not stalled");
        let start = start + LIMIT * 9;
        let first = send(&mut window, 1, start).unwrap();
        send(&mut window, 2, start);
        assert!(!window.is_stalled(LIMIT, start + LIMIT));
        assert!(window.is_stalled(LIMIT, start + LIMIT * 2));
        window.acknowledge(first, start + LIMIT);
        assert!(!window.is_stalled(LIMIT, start + LIMIT * 2), "it moved in between");
        assert!(window.is_stalled(LIMIT, start + LIMIT * 3));
    }

    #[tokio::test]
    async fn only_what_was_skipped_for_too_long_is_given_up() {
        let (mut window, start) = (window(8), Instant::now());
        send(&mut window, 1, start);
        let second = send(&mut window, 2, start).unwrap();
        send(&mut window, 3, start);
        assert_eq!(window.give_up_skipped(LIMIT, start + LIMIT * 9), [], "slow, not skipped");
        let start = start + LIMIT * 9;
        window.acknowledge(second, start);
        assert_eq!(window.give_up_skipped(LIMIT, start), [], "its acknowledgement may follow");
        let lost = window.give_up_skipped(LIMIT, start + LIMIT * 2);
        assert_eq!(numbers(&lost), [1]);
        assert_eq!(window.in_flight().count(), 1, "what was sent later is still waited for");
    }

    #[tokio::test]
    async fn the_identifier_of_a_lost_message_rests_until_its_answer_comes_after_all() {
        let (mut window, now) = (window(4), Instant::now());
        let lost = send(&mut window, 1, now).unwrap();
        assert_eq!(numbers(&window.give_up_sub_batch(1)), [1]);
        for number in 2..=4 {
            assert_ne!(send(&mut window, number, now).unwrap(), lost);
        }
        assert_eq!(send(&mut window, 5, now), None);
        assert_eq!(window.acknowledge(lost, now), None, "it was given up");
        assert_eq!(send(&mut window, 5, now), Some(lost));
    }

    #[tokio::test]
    async fn a_window_that_is_half_lost_takes_nothing_until_it_is_renewed() {
        let (mut window, now) = (window(4), Instant::now());
        for number in 1..=3 {
            send(&mut window, number, now);
        }
        window.give_up_sub_batch(1);
        assert!(window.next_id().is_some() && !window.should_be_renewed());
        window.give_up_sub_batch(2);
        assert_eq!(window.next_id(), None);
        assert!(!window.should_be_renewed(), "one is in flight");
        window.give_up_sub_batch(3);
        assert!(window.should_be_renewed());
    }
}
