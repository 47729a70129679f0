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
use push_model::{
    pace::{Grant, TrafficClass},
    time::UnixMillis,
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until, timeout_at},
};

/// The longest wait before the quota is asked again.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Requests are acquired for about this time ahead.
const AHEAD: Duration = Duration::from_millis(100);
/// They become ready in steps of about this time.
const STEP: Duration = Duration::from_millis(5);
/// The part of a second's requests, one in this many, that broadcasts leave to pushes to named devices.
const LEFT_TO_NAMED: u32 = 200;

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
    /// The name of what is counted.
    name: String,
    quotas: Arc<dyn Quotas>,
    a_second: NonZeroU32,
    /// The requests that may be sent now.
    ready: AtomicU32,
    /// Held by the caller who makes more ready.
    supply: Mutex<Supply>,
}

/// The requests that were acquired and are not ready.
struct Supply {
    acquired: u32,
    /// When the next of them become ready.
    next_at: Instant,
}

impl Quota {
    pub(super) fn new(name: String, quotas: Arc<dyn Quotas>, a_second: NonZeroU32) -> Self {
        let supply = Mutex::new(Supply { acquired: 0, next_at: Instant::now() });
        Self { name, quotas, a_second, ready: AtomicU32::new(0), supply }
    }

    /// Waits for one request of the quota, until this time. Returns false if there was none.
    pub(super) async fn take(&self, class: TrafficClass, until: Instant) -> bool {
        loop {
            if self.take_ready(class) {
                return true;
            }
            let Ok(mut supply) = timeout_at(until, self.supply.lock()).await else {
                return false;
            };
            if self.take_ready(class) {
                return true;
            }
            let again = if supply.acquired == 0 { self.acquire(&mut supply).await } else { None };
            let wait_until = again.unwrap_or(supply.next_at);
            if wait_until >= until {
                return false;
            }
            sleep_until(wait_until).await;
            self.make_ready(&mut supply);
        }
    }

    /// Acquires requests for some time. Returns when to ask again if there are none. Alone, a worker keeps to
    /// the quota by its own pace.
    async fn acquire(&self, supply: &mut Supply) -> Option<Instant> {
        let some = self.within(AHEAD);
        match self.quotas.acquire(&self.name, some, self.a_second).await {
            Some(grant) if !grant.granted => {
                let wait = grant.next_at.0.saturating_sub(self.quotas.now().0).max(1);
                Some(Instant::now() + Duration::from_millis(wait).min(LONGEST_WAIT))
            }
            Some(_) | None => {
                supply.acquired = some;
                None
            }
        }
    }

    /// Makes the next requests ready. They go out evenly: all at once they would delay each other, and a push
    /// to one device among them.
    fn make_ready(&self, supply: &mut Supply) {
        let some = self.within(STEP).min(supply.acquired);
        let time = Duration::from_secs_f64(f64::from(some) / f64::from(self.a_second.get()));
        let now = Instant::now();
        // What a caller came late for is made up for.
        supply.next_at = supply.next_at.max(now.checked_sub(AHEAD).unwrap_or(now)) + time;
        supply.acquired -= some;
        self.ready.fetch_add(some, Ordering::Relaxed);
    }

    /// Returns the requests of the quota within this time, at least one.
    fn within(&self, time: Duration) -> u32 {
        (f64::from(self.a_second.get()) * time.as_secs_f64()).max(1.0) as u32
    }

    /// Broadcasts leave a few to pushes to named devices.
    fn take_ready(&self, class: TrafficClass) -> bool {
        let left = match class {
            TrafficClass::Named => 0,
            TrafficClass::Broadcast => self.a_second.get() / LEFT_TO_NAMED,
        };
        let take = |ready: u32| (ready > left).then(|| ready - 1);
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
        let quota = Quota::new("a".into(), counted.clone(), NonZeroU32::new(1000).unwrap());
        let until = Instant::now() + Duration::from_millis(1900);
        let all = (0..2000).map(|_| quota.take(TrafficClass::Named, until));
        let taken = futures::future::join_all(all).await.into_iter().filter(|taken| *taken).count();
        assert_eq!(taken, 1000);
        let asked = counted.asked.load(Ordering::Relaxed);
        assert!(asked < 1100, "{asked} for 1,000 requests and 1,000 refusals");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_go_out_evenly_and_as_many_as_the_quota_has() {
        let counted = Arc::new(Counted { left: u32::MAX.into(), asked: 0.into() });
        let quota = Quota::new("a".into(), counted, NonZeroU32::new(1000).unwrap());
        let (begun, mut times) = (Instant::now(), Vec::new());
        for _ in 0..2000 {
            assert!(quota.take(TrafficClass::Broadcast, begun + LONGEST_WAIT * 9).await);
            times.push(Instant::now());
        }
        let took = begun.elapsed();
        assert!((1900..2100).contains(&took.as_millis()), "{took:?}");
        let together = times.chunk_by(|one, other| one == other).map(<[_]>::len).max();
        assert!(together.is_some_and(|together| together <= 110), "{together:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_push_to_a_named_device_does_not_wait_behind_a_broadcast() {
        let counted = Arc::new(Counted { left: u32::MAX.into(), asked: 0.into() });
        let quota = Quota::new("a".into(), counted, NonZeroU32::new(1000).unwrap());
        let until = Instant::now() + LONGEST_WAIT * 9;
        let broadcast = futures::future::join_all(
            (0..5000).map(|_| quota.take(TrafficClass::Broadcast, until)),
        );
        let named = async {
            tokio::time::sleep(LONGEST_WAIT).await;
            let begun = Instant::now();
            assert!(quota.take(TrafficClass::Named, until).await);
            begun.elapsed()
        };
        let (sent, waited) = futures::join!(broadcast, named);
        assert!(sent.into_iter().all(|sent| sent));
        assert!(waited.is_zero(), "{waited:?}");
    }
}
