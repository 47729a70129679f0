//! The two clocks by which a message expires.
//!
//! The monotonic clock stops while the machine sleeps, and the wall clock may be set back. A message
//! expires as soon as either clock says so. So it is not delivered late after a sleep, and a clock that
//! is set back does not extend its time to live.

use std::time::Duration;

use push_model::time::UnixMillis;
use tokio::time::Instant;

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clocks {
    pub(super) monotonic: Instant,
    pub(super) wall: UnixMillis,
}

impl Clocks {
    /// Reads both clocks.
    pub(super) fn now() -> Self {
        Self { monotonic: Instant::now(), wall: UnixMillis::now() }
    }
}

/// The moment at which a message expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expiry(Clocks);

impl Expiry {
    /// Returns the end of a time to live that begins now, or `None` if it is beyond the range of [`Instant`].
    pub(super) fn after(time_to_live: Duration, now: Clocks) -> Option<Self> {
        let monotonic = now.monotonic.checked_add(time_to_live)?;
        Some(Self(Clocks { monotonic, wall: now.wall.plus(time_to_live) }))
    }

    /// Returns this time of the wall clock, or `None` if it is beyond the range of [`Instant`].
    pub(super) fn at(end: UnixMillis, now: Clocks) -> Option<Self> {
        Self::after(end.since(now.wall), now)
    }

    /// Returns the remaining time, by the clock that says less.
    pub(super) fn remaining(self, now: Clocks) -> Duration {
        let Self(end) = self;
        end.monotonic.saturating_duration_since(now.monotonic).min(end.wall.since(now.wall))
    }

    /// Returns true if the time to live is over.
    pub(super) fn is_over(self, now: Clocks) -> bool {
        self.remaining(now).is_zero()
    }
}

#[cfg(test)]
impl std::ops::Add<Duration> for Clocks {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self { monotonic: self.monotonic + time, wall: self.wall.plus(time) }
    }
}

#[cfg(test)]
impl Clocks {
    /// Returns the moment after a sleep of the machine, during which only the wall clock runs.
    pub(super) fn slept(self, time: Duration) -> Self {
        Self { wall: self.wall.plus(time), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Duration = Duration::from_secs(10);

    #[test]
    fn a_time_to_live_ends_during_a_sleep_and_is_not_extended_by_a_clock_that_is_set_back() {
        let now = Clocks::now();
        let expiry = Expiry::after(TEN, now).unwrap();
        assert_eq!(expiry.remaining(now), TEN);
        assert_eq!(expiry.remaining(now + TEN / 2), TEN / 2);
        assert_eq!(expiry.remaining(now.slept(TEN / 2)), TEN / 2);
        assert!(expiry.is_over(now.slept(TEN)) && expiry.is_over(now + TEN));
        let set_back = Clocks { wall: UnixMillis(now.wall.0 - 3_600_000), ..now };
        assert_eq!(expiry.remaining(set_back), TEN);
        assert!(expiry.is_over(Clocks { wall: set_back.wall, ..now + TEN }));
        // Messages that were saved before a restart go by the wall clock alone.
        assert_eq!(Expiry::at((now + TEN).wall, now), Some(expiry));
        assert!(Expiry::at(now.wall, now).unwrap().is_over(now));
    }
}
