//! An app's own rate limit: the generic cell rate algorithm (a leaky bucket as one number).
//!
//! An app with the limit N may push N times at once and then N times a second. The limit is
//! held by each process alone: an app may push N times a second to *each* ingest, which costs no
//! round trip to a shared counter and still bounds what one app can do.

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::time::Instant;

const SECOND: u64 = 1_000_000_000;

/// What is left of a limit, in the terms of the `RateLimit-*` headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Quota {
    /// Pushes per second.
    pub(crate) limit: u32,
    /// Pushes that would be allowed now.
    pub(crate) remaining: u32,
    /// Whole seconds until everything is available again.
    pub(crate) reset: u64,
    /// Whole seconds until the next push is allowed; 0 if one is now.
    pub(crate) retry_after: u64,
}

/// The limit of one app.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: NonZeroU32,
    epoch: Instant,
    /// The theoretical arrival time, in nanoseconds since `epoch`: when the bucket is empty.
    empty_at: AtomicU64,
}

impl Limiter {
    pub(crate) fn new(limit: NonZeroU32, now: Instant) -> Self {
        Self { limit, epoch: now, empty_at: AtomicU64::new(0) }
    }

    pub(crate) fn limit(&self) -> NonZeroU32 {
        self.limit
    }

    /// What a push would be told now if none is allowed. Nothing is taken off.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Quota> {
        let (interval, now) = (self.interval(), self.nanos(now));
        let fill = self.empty_at.load(Ordering::Relaxed).saturating_sub(now);
        if fill + interval <= SECOND {
            return Ok(());
        }
        Err(self.quota(interval, fill, fill + interval - SECOND))
    }

    /// Takes as many of these pushes off the limit as it allows, at once. Says how many, and what
    /// is left then.
    pub(crate) fn take_of(&self, pushes: usize, now: Instant) -> (usize, Quota) {
        let (interval, now) = (self.interval(), self.nanos(now));
        let pushes = u64::try_from(pushes).unwrap_or(u64::MAX);
        // How full the bucket is, and how many go in.
        let allowed = |empty_at: u64| {
            let fill = empty_at.saturating_sub(now);
            (fill, pushes.min(SECOND.saturating_sub(fill) / interval))
        };
        let next = |empty_at: u64| {
            let (fill, taken) = allowed(empty_at);
            (taken > 0).then_some(now + fill + taken * interval)
        };
        let (Ok(before) | Err(before)) =
            self.empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let (fill, taken) = allowed(before);
        let fill = fill + taken * interval;
        let quota = self.quota(interval, fill, (fill + interval).saturating_sub(SECOND));
        (usize::try_from(taken).unwrap_or(usize::MAX), quota)
    }

    /// Takes one push off the limit, or says when to come back.
    pub(crate) fn take(&self, now: Instant) -> Result<Quota, Quota> {
        let (interval, now) = (self.interval(), self.nanos(now));
        let next = |empty_at: u64| {
            let filled_until = empty_at.max(now) + interval;
            (filled_until - now <= SECOND).then_some(filled_until)
        };
        match self.empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(before) => {
                let fill = before.max(now) + interval - now;
                Ok(self.quota(interval, fill, 0))
            }
            Err(empty_at) => {
                let fill = empty_at.max(now) - now;
                Err(self.quota(interval, fill, fill + interval - SECOND))
            }
        }
    }

    /// From one push to the next, in nanoseconds.
    fn interval(&self) -> u64 {
        (SECOND / u64::from(self.limit.get())).max(1)
    }

    /// Nanoseconds since the epoch.
    fn nanos(&self, now: Instant) -> u64 {
        let since_epoch = now.saturating_duration_since(self.epoch);
        u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX / 2)
    }

    fn quota(&self, interval: u64, fill: u64, wait: u64) -> Quota {
        let remaining = SECOND.saturating_sub(fill) / interval;
        Quota {
            limit: self.limit.get(),
            remaining: u32::try_from(remaining).unwrap_or(u32::MAX).min(self.limit.get()),
            reset: fill.div_ceil(SECOND),
            retry_after: wait.div_ceil(SECOND),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limiter(limit: u32, now: Instant) -> Limiter {
        Limiter::new(NonZeroU32::new(limit).unwrap(), now)
    }

    #[test]
    fn an_app_may_push_its_limit_at_once_and_then_is_told_when_to_come_back() {
        let start = Instant::now();
        let limiter = limiter(3, start);
        let left: Vec<_> = (0..3).map(|_| limiter.take(start).unwrap().remaining).collect();
        assert_eq!(left, [2, 1, 0]);
        let refused = limiter.take(start).unwrap_err();
        assert_eq!((refused.remaining, refused.retry_after, refused.reset), (0, 1, 1));
    }

    #[test]
    fn over_time_an_app_pushes_at_its_limit_and_not_faster() {
        let start = Instant::now();
        let limiter = limiter(10, start);
        let taken =
            (0..5000).filter(|ms| limiter.take(start + Duration::from_millis(*ms)).is_ok()).count();
        assert!((58..=60).contains(&taken), "10 at once and 10 a second for 5 s, not {taken}");
    }

    #[test]
    fn an_idle_app_does_not_save_up_more_than_its_limit() {
        let start = Instant::now();
        let limiter = limiter(2, start);
        let later = start + Duration::from_secs(3600);
        assert!(limiter.take(later).is_ok());
        assert!(limiter.take(later).is_ok());
        assert!(limiter.take(later).is_err());
    }

    #[test]
    fn the_largest_limit_does_not_overflow() {
        let start = Instant::now();
        let limiter = limiter(u32::MAX, start);
        assert!((0..1000).all(|_| limiter.take(start).is_ok()));
    }

    #[test]
    fn many_pushes_at_once_take_what_as_many_single_ones_would() {
        let start = Instant::now();
        for limit in [1, 3, 7, 1000] {
            let (single, many) = (limiter(limit, start), limiter(limit, start));
            for (pushes, after) in [(2, 0), (0, 0), (500, 1), (3, 200), (2000, 900), (1, 901)] {
                let now = start + Duration::from_millis(after);
                let results: Vec<_> = (0..pushes).map(|_| single.take(now)).collect();
                let taken = results.iter().filter(|result| result.is_ok()).count();
                let (many_taken, quota) = many.take_of(pushes, now);
                assert_eq!(many_taken, taken, "{pushes} after {after} ms with limit {limit}");
                let last = results.iter().rfind(|result| result.is_ok() || taken == 0);
                if let Some(Ok(last) | Err(last)) = last {
                    assert_eq!(quota.remaining, last.remaining);
                    assert_eq!(quota.reset, last.reset);
                }
                assert_eq!(many.check(now).is_ok(), quota.retry_after == 0);
                assert_eq!(many.check(now).err().map_or(0, |q| q.retry_after), quota.retry_after);
            }
        }
    }
}
