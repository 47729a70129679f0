//! The connections of a pool and the requests that each carries: which one takes the next request,
//! and when another is opened. Pure, without sockets and clocks.

use std::sync::Arc;

use tokio::{sync::Notify, time::Instant};

use crate::connection::{
    End,
    allowance::{Allowance, UNSTATED},
    liveness::Usage,
};

/// The requests without an answer on one connection, answered ones between them or not, after which
/// it gets no more. Late answers to them are remembered by the connection, which is bounded.
const GIVEN_UP_MOST: u32 = 512;

/// The requests in a row without an answer after which a connection gets no more, although it
/// answers pings or goes on resetting streams.
const SILENT_MOST: u32 = 8;

/// The requests in a row that a server refused although the connection carried no other, after which it gets no
/// more. A few are left to it: a server that refuses some requests at random is not one that cannot be used.
const REFUSED_ALONE_MOST: u32 = 8;

/// What became of a request on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was answered.
    Answered,
    /// It was answered, and the connection can carry no other.
    AnsweredLast,
    /// The server refused to begin with it.
    Refused,
    /// Its deadline passed, its sender gave it up, or the server did.
    GivenUp,
    /// The connection ended before it was answered.
    Failed,
    /// It was certainly not processed, which says nothing about the connection.
    Unused,
}

/// How well a connection has served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// It was never given a request.
    Unused,
    /// No request was answered.
    None,
    /// Some requests were answered, others were not.
    Part,
    /// Every request was answered.
    Whole,
}

/// One connection. `T` is the side that sends.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(crate) id: u64,
    /// `None` after it was retired.
    pub(crate) sender: Option<T>,
    pub(crate) allowance: Allowance,
    pub(crate) in_use: usize,
    was_used: bool,
    /// The time since which it has been in use, or not.
    since: Instant,
    pub(crate) opened: Instant,
    answers: u64,
    /// The requests that ended otherwise, those that were given up apart.
    failed: u64,
    given_up: u32,
    silent: u32,
    refused_alone: u32,
    /// How it went out of use, until the pool has judged that.
    pub(crate) unjudged: Option<End>,
    /// Its driver has ended.
    pub(crate) ended: bool,
    wake: Arc<Notify>,
}

impl<T> Slot<T> {
    /// The requests that it could take now.
    fn free(&self) -> usize {
        if self.sender.is_none() { 0 } else { self.allowance.limit().saturating_sub(self.in_use) }
    }

    /// Returns how well it has served so far.
    pub(crate) fn service(&self) -> Service {
        if !self.was_used {
            Service::Unused
        } else if self.answers == 0 {
            Service::None
        } else if self.in_use == 0 && self.failed == 0 && self.given_up == 0 {
            Service::Whole
        } else {
            Service::Part
        }
    }

    fn retire(&mut self, now: Instant) -> bool {
        let was_in_service = self.sender.take().is_some();
        if was_in_service && self.in_use == 0 {
            self.since = now;
        }
        self.wake.notify_one();
        was_in_service
    }
}

/// All connections of a pool.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    next_id: u64,
    /// The connections that are being opened.
    pub(crate) opening: usize,
    /// The requests that a connection of this server has carried at a time, for the number of
    /// connections that are opened together.
    expected: usize,
}

impl<T: Clone> Slots<T> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), next_id: 0, opening: 0, expected: UNSTATED }
    }

    /// Adds a connection that was just opened, and returns its id.
    pub(crate) fn add(&mut self, sender: T, stated: usize, wake: Arc<Notify>, now: Instant) -> u64 {
        self.next_id += 1;
        let allowance = Allowance::new(stated);
        self.expected = allowance.limit().max(1);
        self.slots.push(Slot {
            id: self.next_id,
            sender: Some(sender),
            allowance,
            in_use: 0,
            was_used: false,
            since: now,
            opened: now,
            answers: 0,
            failed: 0,
            given_up: 0,
            silent: 0,
            refused_alone: 0,
            unjudged: None,
            ended: false,
            wake,
        });
        self.next_id
    }

    /// Gives the next request to the oldest connection that has room, so that those that are not
    /// needed become idle and are closed.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(u64, T)> {
        let slot = self.slots.iter_mut().find(|slot| slot.free() > 0)?;
        let sender = slot.sender.clone()?;
        slot.in_use += 1;
        slot.was_used = true;
        if slot.in_use == 1 {
            slot.since = now;
            slot.wake.notify_one();
        }
        Some((slot.id, sender))
    }

    /// Takes a request back from its connection. Returns the connection if it is to be retired.
    pub(crate) fn give_back(&mut self, id: u64, outcome: Outcome, now: Instant) -> Option<u64> {
        let slot = self.get_mut(id)?;
        slot.in_use = slot.in_use.saturating_sub(1);
        if slot.in_use == 0 {
            slot.since = now;
            slot.wake.notify_one();
        }
        match outcome {
            Outcome::Answered => {
                slot.answers += 1;
                slot.silent = 0;
                slot.refused_alone = 0;
                slot.allowance.answered();
            }
            Outcome::AnsweredLast => {
                slot.answers += 1;
                return Some(id);
            }
            // It says nothing about the limit.
            Outcome::Refused if slot.in_use == 0 => {
                slot.refused_alone += 1;
                return (slot.refused_alone >= REFUSED_ALONE_MOST).then_some(id);
            }
            Outcome::Refused => slot.allowance.refused(slot.in_use),
            Outcome::GivenUp => {
                slot.given_up += 1;
                slot.silent += 1;
            }
            Outcome::Failed => slot.failed += 1,
            Outcome::Unused => {}
        }
        (slot.given_up >= GIVEN_UP_MOST || slot.silent >= SILENT_MOST).then_some(id)
    }

    /// Takes over the limit that the server states now.
    pub(crate) fn state(&mut self, id: u64, stated: usize) {
        let Some(slot) = self.get_mut(id) else { return };
        slot.allowance.state(stated);
        // A server that allows nothing for now does not mean to be given more connections.
        if let limit @ 1.. = slot.allowance.limit() {
            self.expected = limit;
        }
    }

    /// Takes the connection out of use. Returns false if it was already.
    pub(crate) fn retire(&mut self, id: u64, now: Instant) -> bool {
        self.get_mut(id).is_some_and(|slot| slot.retire(now))
    }

    /// Notes that the driver of a connection has ended.
    pub(crate) fn end(&mut self, id: u64) {
        if let Some(slot) = self.get_mut(id) {
            slot.ended = true;
        }
    }

    /// Forgets the connections that have ended and carry nothing.
    pub(crate) fn forget_ended(&mut self) {
        self.slots.retain(|slot| !slot.ended || slot.in_use > 0);
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Slot<T>> {
        self.slots.iter_mut().find(|slot| slot.id == id)
    }

    /// Wakes the drivers of all connections.
    pub(crate) fn wake(&self) {
        self.slots.iter().for_each(|slot| slot.wake.notify_one());
    }

    /// The connection that has been unused for longest, and since when.
    pub(crate) fn longest_idle(&self) -> Option<(Instant, u64)> {
        let idle = self.in_service().filter(|slot| slot.in_use == 0);
        idle.map(|slot| (slot.since, slot.id)).min()
    }

    pub(crate) fn usage(&self, id: u64) -> Option<Usage> {
        let slot = self.slots.iter().find(|slot| slot.id == id)?;
        Some(Usage { in_use: slot.in_use, since: slot.since, retired: slot.sender.is_none() })
    }

    /// The connections that requests may be given to.
    pub(crate) fn in_service(&self) -> impl Iterator<Item = &Slot<T>> {
        self.slots.iter().filter(|slot| slot.sender.is_some())
    }

    /// The requests that the connections could take now.
    pub(crate) fn free(&self) -> usize {
        self.slots.iter().map(Slot::free).sum()
    }

    /// The connections that are to be opened for so many waiting requests.
    pub(crate) fn to_open(&self, waiting: usize, most: usize) -> usize {
        let wanted = waiting.div_ceil(self.expected).saturating_sub(self.opening);
        wanted.min(most.saturating_sub(self.in_service().count() + self.opening))
    }

    /// The requests that could begin on connections that are not open yet.
    pub(crate) fn openable(&self, most: usize) -> usize {
        most.saturating_sub(self.in_service().count()).saturating_mul(self.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(limits: &[usize]) -> Slots<()> {
        let mut slots = Slots::new();
        for limit in limits {
            slots.add((), *limit, Arc::default(), Instant::now());
        }
        slots
    }

    fn taken(slots: &mut Slots<()>) -> Option<u64> {
        slots.take(Instant::now()).map(|(id, ())| id)
    }

    #[test]
    fn requests_fill_the_oldest_connection_first_and_never_exceed_a_limit() {
        let mut slots = slots(&[2, 1]);
        let given: Vec<_> = (0..4).map(|_| taken(&mut slots)).collect();
        assert_eq!(given, [Some(1), Some(1), Some(2), None]);
        assert_eq!(slots.free(), 0);
        assert_eq!(slots.give_back(1, Outcome::Answered, Instant::now()), None);
        assert_eq!(taken(&mut slots), Some(1));
    }

    #[test]
    fn a_limit_below_what_is_in_use_is_kept_as_soon_as_answers_come() {
        let mut slots = slots(&[3]);
        (0..3).for_each(|_| assert_eq!(taken(&mut slots), Some(1)));
        slots.get_mut(1).unwrap().allowance.state(1);
        for _ in 0..2 {
            slots.give_back(1, Outcome::Answered, Instant::now());
            assert_eq!(taken(&mut slots), None);
        }
        slots.give_back(1, Outcome::Answered, Instant::now());
        assert_eq!(taken(&mut slots), Some(1));
    }

    #[test]
    fn as_many_connections_are_opened_as_the_waiting_requests_need() {
        let mut slots = slots(&[]);
        assert_eq!(slots.to_open(0, 4), 0);
        assert_eq!(slots.to_open(1, 4), 1);
        assert_eq!(slots.to_open(UNSTATED + 1, 4), 2);
        slots.opening = 1;
        assert_eq!(slots.to_open(UNSTATED, 4), 0);
        assert_eq!(slots.to_open(usize::MAX, 4), 3);
        // The server turns out to take one request on each.
        slots.opening = 0;
        slots.add((), 1, Arc::default(), Instant::now());
        assert_eq!(slots.to_open(10, 4), 3);
        // Later it allows many, and then none for a while.
        slots.state(1, 50);
        slots.state(1, 0);
        assert_eq!(slots.to_open(10, 4), 1);
    }

    #[test]
    fn a_connection_that_was_given_no_request_has_not_failed_any() {
        let mut slots = slots(&[1]);
        assert_eq!(slots.get_mut(1).unwrap().service(), Service::Unused);
        assert_eq!(taken(&mut slots), Some(1));
        slots.give_back(1, Outcome::Unused, Instant::now());
        assert_eq!(slots.get_mut(1).unwrap().service(), Service::None);
    }

    #[test]
    fn a_refusal_beside_other_requests_lowers_the_limit() {
        let mut slots = slots(&[10]);
        (0..3).for_each(|_| assert_eq!(taken(&mut slots), Some(1)));
        assert_eq!(slots.give_back(1, Outcome::Refused, Instant::now()), None);
        assert_eq!(taken(&mut slots), None);
    }

    #[test]
    fn lone_refusals_end_the_connection_only_if_no_answer_is_among_several() {
        let mut slots = slots(&[10]);
        let mut give_back = |outcome| {
            assert_eq!(taken(&mut slots), Some(1));
            slots.give_back(1, outcome, Instant::now())
        };
        for _ in 0..3 {
            (1..REFUSED_ALONE_MOST).for_each(|_| assert_eq!(give_back(Outcome::Refused), None));
            assert_eq!(give_back(Outcome::Answered), None);
        }
        (1..REFUSED_ALONE_MOST).for_each(|_| assert_eq!(give_back(Outcome::Refused), None));
        assert_eq!(give_back(Outcome::Refused), Some(1));
    }

    #[test]
    fn a_connection_that_answers_nothing_is_retired() {
        let mut slots = slots(&[100]);
        let mut given_up = 0;
        loop {
            (0..2).for_each(|_| assert_eq!(taken(&mut slots), Some(1)));
            assert_eq!(slots.give_back(1, Outcome::Unused, Instant::now()), None);
            given_up += 1;
            if slots.give_back(1, Outcome::GivenUp, Instant::now()).is_some() {
                break;
            }
        }
        assert_eq!(given_up, SILENT_MOST);
        assert!(slots.retire(1, Instant::now()));
        assert!(!slots.retire(1, Instant::now()));
        assert_eq!(taken(&mut slots), None);
        slots.end(1);
        slots.forget_ended();
        assert!(slots.usage(1).is_none());
    }
}
