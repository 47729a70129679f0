//! The generic cell rate algorithm (GCRA), a leaky bucket that needs one number.
//!
//! The number is the theoretical arrival time of the next event if events came at exactly the rate that is
//! allowed. Its distance from now is the debt: each event adds an interval to it, and it may be as large as
//! the burst. There is no lock, and nothing to count down in the background.
//!
//! (The pace of an app, in `push_model::pace`, is another rule over the same number, which all
//! workers share.)

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// So many nanoseconds.
pub type Nanos = u64;

/// The number of events that are allowed.
#[derive(Debug, Clone, Copy)]
pub struct Gcra {
    /// From one event to the next at the limit.
    pub interval: Nanos,
    /// The largest debt.
    pub burst: Nanos,
}

impl Gcra {
    /// Allows this many events together, and then as many in each `period`.
    pub fn new(events: NonZeroU32, period: Duration) -> Self {
        let burst = nanos(period);
        Self { interval: (burst / u64::from(events.get())).max(1), burst }
    }

    /// Returns how many events are allowed on top of this debt.
    pub const fn allowed(self, debt: Nanos) -> u64 {
        self.burst.saturating_sub(debt) / self.interval
    }

    /// Returns the time, from this debt on, until one more event is allowed.
    pub const fn wait(self, debt: Nanos) -> Nanos {
        (debt + self.interval).saturating_sub(self.burst)
    }
}

/// A theoretical arrival time, in nanoseconds since a time that its owner chose.
#[derive(Debug, Default)]
pub struct Arrival(AtomicU64);

impl Arrival {
    /// Returns the debt at this time.
    pub fn debt(&self, now: Nanos) -> Nanos {
        self.0.load(Ordering::Relaxed).saturating_sub(now)
    }

    /// Counts as many of these events as the rule allows, in one step. Returns how many, and the
    /// debt then.
    pub fn count(&self, rule: Gcra, events: u64, now: Nanos) -> (u64, Nanos) {
        let after = |arrival: u64| {
            let debt = arrival.saturating_sub(now);
            let counted = events.min(rule.allowed(debt));
            (counted, debt + counted * rule.interval)
        };
        let next = |arrival| {
            let (counted, debt) = after(arrival);
            (counted > 0).then_some(now + debt)
        };
        let (Ok(before) | Err(before)) =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        after(before)
    }

    /// Takes one event back that was counted.
    pub fn take_back(&self, rule: Gcra) {
        let earlier = |arrival: u64| Some(arrival.saturating_sub(rule.interval));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
    }
}

/// A time, as an [`Arrival`] has it.
pub fn nanos_since(begin: Instant, now: Instant) -> Nanos {
    nanos(now.saturating_duration_since(begin))
}

/// Half of what the number can hold at most, so that sums do not overflow.
fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Gcra = Gcra { interval: 10, burst: 30 };

    #[test]
    fn a_burst_is_allowed_at_once_and_then_one_event_each_interval() {
        let arrival = Arrival::default();
        assert_eq!(arrival.count(RULE, 2, 100), (2, 20));
        assert_eq!(arrival.count(RULE, 5, 100), (1, 30), "as many as are allowed");
        assert_eq!((arrival.count(RULE, 1, 100), RULE.wait(30)), ((0, 30), 10));
        assert_eq!(arrival.count(RULE, 1, 109).0, 0, "what was not allowed does not count");
        assert_eq!(arrival.count(RULE, 1, 110), (1, 30));
        assert_eq!(arrival.count(RULE, 9, 10_000), (3, 30), "no more is saved up");
    }

    #[test]
    fn what_is_taken_back_is_allowed_again() {
        let arrival = Arrival::default();
        arrival.count(RULE, 3, 0);
        arrival.take_back(RULE);
        assert_eq!((arrival.debt(0), arrival.debt(15), RULE.allowed(20)), (20, 5, 1));
    }
}
