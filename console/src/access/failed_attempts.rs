//! Wrong keys, counted for each address.
//!
//! A key has 256 random bits and is not guessed. But the work has to be bounded, because each wrong key is looked
//! up in the index. The addresses are not stored: each has, by its hash, one of a fixed number of counters, so
//! there is no lock, and nothing to evict. Two addresses that share a counter share a bound.
//!
//! A counter is the time in nanoseconds at which its address has nothing left to wait for, as in GCRA.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use push_boot::network::network_of;
use tokio::time::Instant;

/// The number of counters, of 8 bytes each.
const COUNTERS: u64 = 4096;
/// The wrong keys that an address may present together.
const BURST: u64 = 20;
/// The time after which it may present one more.
const INTERVAL: Duration = Duration::from_secs(3);
/// In nanoseconds.
const STEP: u64 = INTERVAL.as_nanos() as u64;
/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// The wrong keys of all addresses.
#[derive(Debug)]
pub(super) struct FailedAttempts {
    epoch: Instant,
    /// Its keys are random, so that no client can choose an address with another's counter.
    hasher: RandomState,
    counters: Box<[AtomicU64]>,
}

impl FailedAttempts {
    pub(super) fn new(now: Instant) -> Self {
        let counters = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        Self { epoch: now, hasher: RandomState::new(), counters }
    }

    /// Counts a wrong key.
    ///
    /// # Errors
    /// If the address had used them up before: whole seconds until it may present one more.
    pub(super) fn count(&self, address: IpAddr, now: Instant) -> Result<(), u64> {
        let since = now.saturating_duration_since(self.epoch).as_nanos();
        let now = u64::try_from(since).unwrap_or(u64::MAX / 2);
        let next = |free_at: u64| {
            let next = free_at.max(now) + STEP;
            (next - now <= BURST * STEP).then_some(next)
        };
        let counter = self.counter(address);
        match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(()),
            Err(free_at) => Err((free_at + STEP - now - BURST * STEP).div_ceil(SECOND)),
        }
    }

    /// Takes back what was counted for a key that was right.
    pub(super) fn take_back(&self, address: IpAddr) {
        let earlier = |free_at: u64| Some(free_at.saturating_sub(STEP));
        let _ = self.counter(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
    }

    fn counter(&self, address: IpAddr) -> &AtomicU64 {
        let hash = self.hasher.hash_one(network_of(address));
        // The remainder is less than the number of counters.
        &self.counters[usize::try_from(hash % COUNTERS).unwrap_or_default()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_present_so_many_wrong_keys_and_is_then_told_when_to_come_back() {
        let start = Instant::now();
        let attempts = FailedAttempts::new(start);
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..BURST {
            assert_eq!(attempts.count(one, start), Ok(()));
        }
        assert_eq!(attempts.count(one, start), Err(3));
        assert_eq!(attempts.count(one, start + Duration::from_secs(1)), Err(2));
        let later = start + INTERVAL;
        assert_eq!(attempts.count(one, later), Ok(()), "what was refused does not count");
        assert_eq!(attempts.count(one, later), Err(3));
        attempts.take_back(one);
        assert_eq!(attempts.count(one, later), Ok(()));
        let after = start + 100 * INTERVAL;
        let allowed = (0..100).filter(|_| attempts.count(one, after).is_ok()).count() as u64;
        assert_eq!(allowed, BURST, "no more is saved up");
    }

    #[test]
    fn addresses_are_counted_apart_and_those_of_one_ipv6_network_together() {
        let start = Instant::now();
        let attempts = FailedAttempts::new(start);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for n in 0..BURST {
            attempts.count(address(&format!("2001:db8:1:2::{n:x}")), start).unwrap();
        }
        assert!(attempts.count(address("2001:db8:1:2:ffff::9"), start).is_err());
        let others = (0..100).map(|n| address(&format!("192.0.2.{n}")));
        assert!(others.filter(|other| attempts.count(*other, start).is_err()).count() < 5);
    }
}
