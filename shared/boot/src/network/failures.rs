//! Failures to log in, counted for each address.
//!
//! A secret or a key has 256 random bits and is not guessed. But the work has to be bounded: each wrong one is
//! looked up in the index.
//!
//! Other clients may share the address, behind a proxy. So the bound refuses no request whose secret is right:
//! what was counted for it is taken back.
//!
//! The addresses are not stored. Each has, by its hash, one of a fixed number of counters
//! ([`gcra`](super::gcra)). Two addresses that share a counter share a bound, which does no harm for the same
//! reason. There is no lock, and nothing to evict.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    num::NonZeroU32,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    gcra::{Arrival, Gcra, nanos_since},
    network_of,
};

/// The number of counters, of 8 bytes each.
const COUNTERS: usize = 16_384;
/// The bound is on failures in this time.
const PERIOD: Duration = Duration::from_mins(1);
/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// The failures of all addresses.
#[derive(Debug)]
pub struct Failures {
    /// None if there is no bound.
    rule: Option<Gcra>,
    epoch: Instant,
    /// Its keys are random, so that no client can choose an address with another's counter.
    hasher: RandomState,
    counters: Box<[Arrival]>,
}

impl Failures {
    /// Allows each address so many in a minute.
    pub fn new(a_minute: Option<NonZeroU32>, now: Instant) -> Self {
        Self {
            rule: a_minute.map(|limit| Gcra::new(limit, PERIOD)),
            epoch: now,
            hasher: RandomState::new(),
            counters: (0..COUNTERS).map(|_| Arrival::default()).collect(),
        }
    }

    /// Counts a failure.
    ///
    /// # Errors
    /// If the address had used them up before: whole seconds until it may fail again.
    pub fn count(&self, address: IpAddr, now: Instant) -> Result<(), u64> {
        let Some(rule) = self.rule else { return Ok(()) };
        match self.counter(address).count(rule, 1, nanos_since(self.epoch, now)) {
            (0, debt) => Err(rule.wait(debt).div_ceil(SECOND)),
            _ => Ok(()),
        }
    }

    /// Takes back what was counted for a login that did not fail.
    pub fn take_back(&self, address: IpAddr) {
        if let Some(rule) = self.rule {
            self.counter(address).take_back(rule);
        }
    }

    fn counter(&self, address: IpAddr) -> &Arrival {
        let hash = self.hasher.hash_one(network_of(address));
        // The remainder is less than the number of counters.
        &self.counters[usize::try_from(hash % COUNTERS as u64).unwrap_or_default()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(a_minute: u32, now: Instant) -> Failures {
        Failures::new(NonZeroU32::new(a_minute), now)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_may_fail_so_often_in_a_minute_and_is_then_told_when_to_come_back() {
        let start = Instant::now();
        let failures = of(3, start);
        let one = address("192.0.2.1");
        for _ in 0..3 {
            assert_eq!(failures.count(one, start), Ok(()));
        }
        assert_eq!(failures.count(one, start), Err(20));
        let later = start + Duration::from_secs(20);
        assert_eq!(failures.count(one, later), Ok(()), "what was refused does not count");
        assert_eq!(failures.count(one, later), Err(20));
        failures.take_back(one);
        assert_eq!(failures.count(one, later), Ok(()), "nor does a login that did not fail");
        assert_eq!(failures.count(one, later), Err(20));
    }

    #[test]
    fn addresses_are_counted_apart_and_those_of_one_ipv6_network_together() {
        let start = Instant::now();
        let failures = of(1, start);
        assert_eq!(failures.count(address("2001:db8:1:2::1"), start), Ok(()));
        assert!(failures.count(address("2001:db8:1:2:ffff::9"), start).is_err());
        assert_eq!(failures.count(address("192.0.2.1"), start), Ok(()));
        assert!(failures.count(address("::ffff:192.0.2.1"), start).is_err());
        // A few of them may share a counter.
        let others = (0..100).map(|n| address(&format!("2001:db8:2:{n:x}::1")));
        assert!(others.filter(|other| failures.count(*other, start).is_err()).count() < 5);
    }

    #[test]
    fn without_a_bound_nothing_is_used_up() {
        let start = Instant::now();
        let failures = Failures::new(None, start);
        let one = address("192.0.2.1");
        assert!((0..1000).all(|_| failures.count(one, start).is_ok()));
        failures.take_back(one);
    }
}
