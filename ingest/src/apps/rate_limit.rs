//! An app's own rate limit, by the rule of [`gcra`](push_boot::network::gcra).
//!
//! An app with the limit N may push N times together and then N times a second, and make as many
//! other calls besides. The two are limited apart, so that phones that register do not use up what
//! the backend may push. Each process keeps the limits alone: an app may push N times a second to
//! *each* ingest. That costs no round trip to a shared counter and still bounds what one app can
//! do.
//!
//! A client that sends on without a pause although it is refused would take the processor time of
//! other apps. So refusals have the same limit: those beyond it are answered later, one after the
//! other. A client that comes back when it was told to loses nothing by that.

use std::{num::NonZeroU32, time::Duration};

use push_boot::network::gcra::{Arrival, Gcra, nanos_since};
use tokio::time::{Instant, sleep};

use crate::allowance::RateStatus;

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// The longest time for which a refusal waits, in nanoseconds: no longer than the client is told to wait
/// before its next request, which is a second at least.
const LONGEST_WAIT: u64 = SECOND;

/// The limits of one app.
#[derive(Debug)]
pub(crate) struct RateLimits {
    pub(crate) pushes: RateLimiter,
    /// Calls other than pushes.
    pub(crate) other_calls: RateLimiter,
    /// Pushes and other calls that are refused.
    refusals: RateLimiter,
}

impl RateLimits {
    pub(crate) fn new(limit: NonZeroU32, now: Instant) -> Self {
        let limiter = || RateLimiter::new(limit, now);
        Self { pushes: limiter(), other_calls: limiter(), refusals: limiter() }
    }

    /// Waits until one more refusal may be answered.
    pub(crate) async fn wait_to_refuse(&self, now: Instant) {
        let wait = self.refusals.enqueue(now);
        if !wait.is_zero() {
            // Boxed: few requests need it, and it would be part of every connection.
            Box::pin(sleep(wait)).await;
        }
    }

    /// Returns how many a second each of them allows.
    pub(crate) fn limit(&self) -> NonZeroU32 {
        self.pushes.limit
    }
}

/// A limit, and what is used of it. Said of pushes, for other calls alike.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    limit: NonZeroU32,
    rule: Gcra,
    epoch: Instant,
    used: Arrival,
}

impl RateLimiter {
    pub(crate) fn new(limit: NonZeroU32, now: Instant) -> Self {
        let rule = Gcra::new(limit, Duration::from_secs(1));
        Self { limit, rule, epoch: now, used: Arrival::default() }
    }

    /// Checks that a push would be allowed now, without using the limit.
    ///
    /// # Errors
    /// The rest of the limit if it would not.
    pub(crate) fn check(&self, now: Instant) -> Result<(), RateStatus> {
        let debt = self.used.debt(nanos_since(self.epoch, now));
        if self.rule.allowed(debt) > 0 { Ok(()) } else { Err(self.status(debt)) }
    }

    /// Acquires as many of these pushes as the limit allows, in one step. Returns how many, and
    /// what is left then.
    pub(crate) fn acquire_up_to(&self, pushes: usize, now: Instant) -> (usize, RateStatus) {
        let pushes = u64::try_from(pushes).unwrap_or(u64::MAX);
        let (acquired, debt) = self.used.count(self.rule, pushes, nanos_since(self.epoch, now));
        (usize::try_from(acquired).unwrap_or(usize::MAX), self.status(debt))
    }

    /// Acquires one push.
    ///
    /// # Errors
    /// The time to come back, if none is allowed now.
    pub(crate) fn acquire(&self, now: Instant) -> Result<RateStatus, RateStatus> {
        match self.acquire_up_to(1, now) {
            (0, rate) => Err(rate),
            (_, rate) => Ok(rate),
        }
    }

    /// Acquires one push ahead of time, and returns how long it has to wait for its turn. Behind
    /// [`LONGEST_WAIT`] there is no turn: it waits for so long, and no later one waits for it.
    fn enqueue(&self, now: Instant) -> Duration {
        let burst = self.rule.burst;
        let ahead = Gcra { burst: burst + LONGEST_WAIT, ..self.rule };
        let wait = match self.used.count(ahead, 1, nanos_since(self.epoch, now)) {
            (0, _) => LONGEST_WAIT,
            (_, debt) => debt.saturating_sub(burst),
        };
        Duration::from_nanos(wait)
    }

    /// Returns the rest of the limit at this debt.
    fn status(&self, debt: u64) -> RateStatus {
        let remaining = u32::try_from(self.rule.allowed(debt)).unwrap_or(u32::MAX);
        RateStatus {
            limit: self.limit.get(),
            remaining: remaining.min(self.limit.get()),
            reset: debt.div_ceil(SECOND),
            retry_after: self.rule.wait(debt).div_ceil(SECOND),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(limit: u32, now: Instant) -> RateLimiter {
        RateLimiter::new(NonZeroU32::new(limit).unwrap(), now)
    }

    #[test]
    fn an_app_may_push_its_limit_at_once_and_then_is_told_when_to_come_back() {
        let start = Instant::now();
        let limiter = limiter(3, start);
        let left: Vec<_> = (0..3).map(|_| limiter.acquire(start).unwrap().remaining).collect();
        assert_eq!(left, [2, 1, 0]);
        let refused = limiter.acquire(start).unwrap_err();
        assert_eq!((refused.remaining, refused.retry_after, refused.reset), (0, 1, 1));
    }

    #[test]
    fn over_time_an_app_pushes_at_its_limit_and_not_faster() {
        let start = Instant::now();
        let limiter = limiter(10, start);
        let acquired = (0..5000)
            .filter(|ms| limiter.acquire(start + Duration::from_millis(*ms)).is_ok())
            .count();
        assert!(
            (58..=60).contains(&acquired),
            "10 at once and 10 a second for 5 s, not {acquired}"
        );
    }

    #[test]
    fn an_idle_app_does_not_save_up_more_than_its_limit() {
        let start = Instant::now();
        let limiter = limiter(2, start);
        let later = start + Duration::from_secs(3600);
        assert!(limiter.acquire(later).is_ok());
        assert!(limiter.acquire(later).is_ok());
        assert!(limiter.acquire(later).is_err());
    }

    #[test]
    fn the_largest_limit_does_not_overflow() {
        let start = Instant::now();
        let limiter = limiter(u32::MAX, start);
        assert!((0..1000).all(|_| limiter.acquire(start).is_ok()));
        assert!((0..1000).all(|_| limiter.enqueue(start).is_zero()));
    }

    #[test]
    fn refusals_within_the_limit_come_at_once_and_others_one_after_the_other_up_to_a_second_later()
    {
        let start = Instant::now();
        let limiter = limiter(4, start);
        let waits = |now| (0..11).map(|_| limiter.enqueue(now).as_millis()).collect::<Vec<_>>();
        assert_eq!(waits(start), [0, 0, 0, 0, 250, 500, 750, 1000, 1000, 1000, 1000]);
        let later = start + Duration::from_millis(500);
        assert_eq!(waits(later)[..4], [750, 1000, 1000, 1000], "two have had their turn");
        assert_eq!(waits(start + Duration::from_secs(60))[..5], [0, 0, 0, 0, 250]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_on_is_answered_at_the_limit() {
        let limits = RateLimits::new(NonZeroU32::new(10).unwrap(), Instant::now());
        let begun = Instant::now();
        for _ in 0..50 {
            limits.wait_to_refuse(Instant::now()).await;
        }
        let took = begun.elapsed().as_millis();
        assert!((4000..4100).contains(&took), "10 at once and 10 a second, not {took} ms");
    }

    #[test]
    fn many_pushes_at_once_acquire_what_as_many_single_ones_would() {
        let start = Instant::now();
        for limit in [1, 3, 7, 1000] {
            let (single, many) = (limiter(limit, start), limiter(limit, start));
            for (pushes, after) in [(2, 0), (0, 0), (500, 1), (3, 200), (2000, 900), (1, 901)] {
                let now = start + Duration::from_millis(after);
                let results: Vec<_> = (0..pushes).map(|_| single.acquire(now)).collect();
                let acquired = results.iter().filter(|result| result.is_ok()).count();
                let (many_acquired, rate) = many.acquire_up_to(pushes, now);
                assert_eq!(many_acquired, acquired, "{pushes} after {after} ms with limit {limit}");
                let last = results.iter().rfind(|result| result.is_ok() || acquired == 0);
                if let Some(Ok(last) | Err(last)) = last {
                    assert_eq!(rate.remaining, last.remaining);
                    assert_eq!(rate.reset, last.reset);
                }
                assert_eq!(many.check(now).is_ok(), rate.retry_after == 0);
                assert_eq!(many.check(now).err().map_or(0, |q| q.retry_after), rate.retry_after);
            }
        }
    }
}
