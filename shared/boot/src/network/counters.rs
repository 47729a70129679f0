//! How often each of any number of callers may do something, in a fixed number of counters.
//!
//! The callers are not stored. Each has, by its hash, one of the counters ([`gcra`](super::gcra)). Two callers that share a
//! counter share a bound, so a bound must leave room for that. There is no lock, and nothing to evict.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    num::NonZeroU32,
    time::Duration,
};

use tokio::time::Instant;

use super::gcra::{Arrival, Gcra, nanos_since};

/// The bound is on events in this time.
const PERIOD: Duration = Duration::from_mins(1);
/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Counters of 8 bytes each.
#[derive(Debug)]
pub struct Counters {
    /// None if there is no bound.
    rule: Option<Gcra>,
    epoch: Instant,
    /// Its keys are random, so that no client can choose a counter.
    hasher: RandomState,
    counters: Box<[Arrival]>,
}

impl Counters {
    /// Allows each caller so many events in a minute.
    pub fn new(counters: usize, a_minute: Option<NonZeroU32>, now: Instant) -> Self {
        Self {
            rule: a_minute.map(|limit| Gcra::new(limit, PERIOD)),
            epoch: now,
            hasher: RandomState::new(),
            counters: (0..counters).map(|_| Arrival::default()).collect(),
        }
    }

    /// Counts an event.
    ///
    /// # Errors
    /// If the caller had used them up before: whole seconds until the next one is allowed.
    pub fn count(&self, caller: impl Hash, now: Instant) -> Result<(), u64> {
        let Some((rule, counter)) = self.rule.zip(self.counter(caller)) else { return Ok(()) };
        match counter.count(rule, 1, nanos_since(self.epoch, now)) {
            (0, debt) => Err(rule.wait(debt).div_ceil(SECOND)),
            _ => Ok(()),
        }
    }

    /// Takes back an event that was counted.
    pub fn take_back(&self, caller: impl Hash) {
        if let Some((rule, counter)) = self.rule.zip(self.counter(caller)) {
            counter.take_back(rule);
        }
    }

    fn counter(&self, caller: impl Hash) -> Option<&Arrival> {
        let hash = self.hasher.hash_one(caller);
        let place = hash.checked_rem(u64::try_from(self.counters.len()).ok()?)?;
        self.counters.get(usize::try_from(place).ok()?)
    }
}
