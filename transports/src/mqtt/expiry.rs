//! A message's lifetime by the monotonic clock, and in the units of MQTT.

use push_model::time::UnixMillis;
use tokio::time::Instant;

use crate::lifetime::Lifetime;

/// The time within which a message may be handed over, and kept by the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expiry {
    /// The last instant; `None` if it is beyond the range of [`Instant`].
    end: Option<Instant>,
    /// The last instant by the wall clock.
    end_at: UnixMillis,
    now_or_never: bool,
}

impl Expiry {
    /// Converts a message's lifetime; `now` is the caller's wall clock at the instant `at`.
    pub(super) fn new(lifetime: Lifetime, now: UnixMillis, at: Instant) -> Self {
        let end = at.checked_add(lifetime.end().since(now));
        Self {
            end,
            end_at: lifetime.end(),
            now_or_never: matches!(lifetime, Lifetime::NowOrNever { .. }),
        }
    }

    /// Returns the last instant at which the message may be handed over, or `None` if it is beyond the range
    /// of [`Instant`].
    pub(super) fn end(self) -> Option<Instant> {
        self.end
    }

    /// Returns true if the message is only for devices that can take it now.
    pub(super) fn is_now_or_never(self) -> bool {
        self.now_or_never
    }

    /// Returns the MQTT message expiry interval in seconds, or `None` if the lifetime is over. The wall clock
    /// `now` includes time in which the machine slept, the instant `at` does not.
    ///
    /// MQTT counts whole seconds. They are rounded down, so that a broker does not deliver a message too
    /// late. Less than one second is sent as one, the shortest time that every broker obeys: 0 is legal in
    /// MQTT 5, but Mosquitto reads it as "never expires". So a broker delivers less than one second too
    /// late. A "now or never" message may be kept for that second for an offline device.
    pub(super) fn interval(self, at: Instant, now: UnixMillis) -> Option<u32> {
        if now > self.end_at {
            return None;
        }
        let Some(end) = self.end else { return Some(u32::MAX) };
        let remaining = end.checked_duration_since(at)?.min(self.end_at.since(now));
        if self.now_or_never {
            return Some(1);
        }
        Some(u32::try_from(remaining.as_secs()).unwrap_or(u32::MAX).max(1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn interval(lifetime: Lifetime, now: u64, passed: Duration) -> Option<u32> {
        let at = Instant::now();
        let later = UnixMillis(now).plus(passed);
        Expiry::new(lifetime, UnixMillis(now), at).interval(at + passed, later)
    }

    fn until(end: u64) -> Lifetime {
        Lifetime::Until(UnixMillis(end))
    }

    #[tokio::test]
    async fn the_expiry_interval_is_what_is_left_in_whole_seconds_but_never_zero() {
        assert_eq!(interval(until(10_999), 1_000, Duration::ZERO), Some(9));
        assert_eq!(interval(until(10_999), 1_000, Duration::from_secs(8)), Some(1));
        assert_eq!(interval(until(1_001), 1_000, Duration::ZERO), Some(1));
    }

    #[tokio::test]
    async fn what_expires_while_it_waits_is_not_sent_any_more() {
        let now_or_never = Lifetime::NowOrNever { until: UnixMillis(2_000) };
        for lifetime in [until(2_000), now_or_never] {
            assert_eq!(interval(lifetime, 1_000, Duration::from_secs(1)), Some(1));
            assert_eq!(interval(lifetime, 1_000, Duration::from_millis(1_001)), None);
        }
    }

    #[tokio::test]
    async fn the_time_for_which_the_machine_slept_counts() {
        let (at, slept) = (Instant::now(), UnixMillis(9_000));
        let expiry = Expiry::new(until(10_999), UnixMillis(1_000), at);
        assert_eq!(expiry.interval(at, slept), Some(1));
        assert_eq!(expiry.interval(at, UnixMillis(11_000)), None);
    }

    #[tokio::test]
    async fn now_or_never_is_kept_for_the_shortest_time_that_brokers_obey() {
        let lifetime = Lifetime::NowOrNever { until: UnixMillis(60_000) };
        assert_eq!(interval(lifetime, 1_000, Duration::ZERO), Some(1));
    }

    #[tokio::test]
    async fn a_lifetime_of_millennia_is_capped_not_wrapped() {
        assert_eq!(interval(Lifetime::Until(UnixMillis::MAX), 0, Duration::ZERO), Some(u32::MAX));
    }
}
