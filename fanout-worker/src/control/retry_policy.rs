//! The delay before another try: one rule for unavailable servers, unavailable transports and
//! devices that are tried again.

use std::time::Duration;

/// Exponential back-off with jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first delay.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
}

impl RetryPolicy {
    /// The delay after a failure that `attempt` others came before: doubled each time, up to the
    /// longest, and spread by `jitter` (0 to 1) over its upper half, so that what failed at one
    /// time is not retried at one time.
    pub fn delay(&self, attempt: u32, jitter: f64) -> Duration {
        let doubled = self.first.saturating_mul(2u32.saturating_pow(attempt.min(30)));
        doubled.min(self.longest).mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
    }
}

/// Returns the longest delay after which a queue message is delivered within this time: engines may
/// make a delay longer by a quarter and one second.
pub(crate) fn back_within(time: Duration) -> Duration {
    time.saturating_sub(Duration::from_secs(1)).mul_f64(0.8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_spread_over_their_upper_half() {
        let policy =
            RetryPolicy { first: Duration::from_secs(1), longest: Duration::from_secs(60) };
        let delay = |attempt, jitter| policy.delay(attempt, jitter).as_millis();
        assert_eq!([delay(0, 0.0), delay(0, 1.0)], [500, 1000]);
        assert_eq!([delay(3, 0.0), delay(3, 1.0)], [4000, 8000]);
        assert_eq!([delay(6, 1.0), delay(u32::MAX, 1.0)], [60_000, 60_000]);
    }
}
