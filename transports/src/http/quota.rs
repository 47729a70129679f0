//! The quota of a provider, which all workers keep together.
//!
//! A provider counts the requests of an account, from wherever they come (FCM: 600,000 a minute for each
//! project). So requests are acquired from one number in the index, the pace of the account, some at a time:
//! what was acquired serves the next requests of any batch, and one caller acquires for all.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use push_model::{pace::Grant, time::UnixMillis};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};

/// The longest wait before the quota is asked again.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Requests are acquired for about this time ahead.
const AHEAD: Duration = Duration::from_millis(100);

/// Where the requests of all workers are counted.
#[async_trait]
pub trait Quotas: Send + Sync + fmt::Debug {
    /// Acquires so many requests from the quota of an account, all or none. `None` if the count cannot be
    /// reached; then each worker keeps the quota alone.
    async fn acquire(&self, account: &str, requests: u32, a_second: NonZeroU32) -> Option<Grant>;

    /// Returns the time by the wall clock.
    fn now(&self) -> UnixMillis;
}

/// The part of an account's quota that this worker has acquired.
pub(super) struct Quota {
    quotas: Arc<dyn Quotas>,
    a_second: NonZeroU32,
    ready: AtomicU32,
    /// Held by the caller who acquires.
    acquiring: Mutex<()>,
}

impl Quota {
    pub(super) fn new(quotas: Arc<dyn Quotas>, a_second: NonZeroU32) -> Self {
        Self { quotas, a_second, ready: AtomicU32::new(0), acquiring: Mutex::new(()) }
    }

    /// Waits for one request of the quota, until this time. Returns false if there was none.
    pub(super) async fn take(&self, account: &str, until: Instant) -> bool {
        loop {
            if self.take_ready() {
                return true;
            }
            let Ok(_turn) = tokio::time::timeout_at(until, self.acquiring.lock()).await else {
                return false;
            };
            if self.take_ready() {
                return true;
            }
            let some = (self.a_second.get() / (1000 / AHEAD.as_millis() as u32)).max(1);
            let Some(grant) = self.quotas.acquire(account, some, self.a_second).await else {
                // Alone, a worker keeps to the quota by its own waits.
                self.ready.fetch_add(some, Ordering::Relaxed);
                sleep_until((Instant::now() + AHEAD).min(until)).await;
                continue;
            };
            if grant.granted {
                self.ready.fetch_add(some, Ordering::Relaxed);
                continue;
            }
            let wait = grant.next_at.0.saturating_sub(self.quotas.now().0).max(1);
            let again = Instant::now() + Duration::from_millis(wait).min(LONGEST_WAIT);
            if again >= until {
                return false;
            }
            sleep_until(again).await;
        }
    }

    fn take_ready(&self) -> bool {
        let take = |ready: u32| ready.checked_sub(1);
        self.ready.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A count that grants `left` requests in all.
    #[derive(Debug)]
    struct Counted {
        left: AtomicU32,
        asked: AtomicU32,
    }

    #[async_trait]
    impl Quotas for Counted {
        async fn acquire(&self, _: &str, requests: u32, _: NonZeroU32) -> Option<Grant> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let take = |left: u32| left.checked_sub(requests);
            let granted =
                self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
            Some(Grant { granted, next_at: self.now().plus_seconds(1) })
        }

        fn now(&self) -> UnixMillis {
            UnixMillis(1_700_000_000_000)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_callers_take_no_more_than_was_granted_and_ask_seldom() {
        let counted = Arc::new(Counted { left: 1000.into(), asked: 0.into() });
        let quota = Quota::new(counted.clone(), NonZeroU32::new(1000).unwrap());
        let until = Instant::now() + Duration::from_millis(900);
        let all = (0..2000).map(|_| quota.take("a", until));
        let taken = futures::future::join_all(all).await.into_iter().filter(|taken| *taken).count();
        assert_eq!(taken, 1000);
        let asked = counted.asked.load(Ordering::Relaxed);
        assert!(asked < 1100, "{asked} for 1,000 requests and 1,000 refusals");
    }
}
