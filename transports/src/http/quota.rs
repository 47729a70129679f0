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
/// They become ready in steps of about this time. The requests of a step reach their connection together, and a
/// push to one device waits for those before it.
const STEP: Duration = Duration::from_millis(2);
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
    /// The time up to which the requests of the quota have become ready.
    ready_until: Instant,
    /// When the next of them become ready.
    next_at: Instant,
}

impl Quota {
    pub(super) fn new(name: String, quotas: Arc<dyn Quotas>, a_second: NonZeroU32) -> Self {
        let now = Instant::now();
        let supply = Mutex::new(Supply { acquired: 0, ready_until: now, next_at: now });
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
            let begun = Instant::now();
            let again = if supply.acquired == 0 { self.acquire(&mut supply).await } else { None };
            let wait_until = again.unwrap_or(supply.next_at);
            if wait_until >= until {
                return false;
            }
            sleep_until(wait_until).await;
            if supply.acquired > 0 {
                self.make_ready(&mut supply, begun.elapsed());
            }
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

    /// Makes the next requests ready, for which a caller has waited for this time. They go out evenly: all at once
    /// they would delay each other, and a push to one device among them. So what was missed is made up for at
    /// twice the pace at most.
    fn make_ready(&self, supply: &mut Supply, waited: Duration) {
        let now = Instant::now();
        let from = supply.ready_until.max(now.checked_sub(AHEAD).unwrap_or(now));
        let time = (now + STEP).saturating_duration_since(from).min(waited.max(STEP) * 2);
        let some = self.within(time).min(supply.acquired);
        let time = Duration::from_secs_f64(f64::from(some) / f64::from(self.a_second.get()));
        supply.ready_until = from + time;
        supply.next_at = supply.ready_until.max(now + STEP);
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
        assert!(most_together(&times) <= 6, "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_pause_requests_are_made_up_for_and_still_go_out_evenly() {
        let counted = Arc::new(Counted { left: u32::MAX.into(), asked: 0.into() });
        let quota = Quota::new("a".into(), counted, NonZeroU32::new(1000).unwrap());
        tokio::time::sleep(LONGEST_WAIT).await;
        let (begun, mut times) = (Instant::now(), Vec::new());
        for _ in 0..1000 {
            assert!(quota.take(TrafficClass::Broadcast, begun + LONGEST_WAIT * 9).await);
            times.push(Instant::now());
        }
        let took = begun.elapsed();
        assert!((890..930).contains(&took.as_millis()), "100 ms are made up for: {took:?}");
        assert!(most_together(&times) <= 6, "{times:?}");
    }

    fn most_together(times: &[Instant]) -> usize {
        times.chunk_by(|one, other| one == other).map(<[_]>::len).max().unwrap_or_default()
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
