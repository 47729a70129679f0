//! Failures to log in, counted for each address.
//!
//! A secret or a key has 256 random bits and is not guessed. But the work has to be bounded: each wrong one is
//! looked up in the index.
//!
//! Other clients may share the address, behind a proxy. So the bound refuses no request whose secret is right:
//! what was counted for it is taken back.
//!
//! Two addresses that share a counter ([`counters`](super::counters)) share a bound, which does no harm for the
//! same reason.

use std::{net::IpAddr, num::NonZeroU32};

use tokio::time::Instant;

use super::{counters::Counters, network_of};

/// The number of counters.
const COUNTERS: usize = 16_384;

/// The failures of all addresses.
#[derive(Debug)]
pub struct Failures(Counters);

impl Failures {
    /// Allows each address so many in a minute.
    pub fn new(a_minute: Option<NonZeroU32>, now: Instant) -> Self {
        Self(Counters::new(COUNTERS, a_minute, now))
    }

    /// Counts a failure.
    ///
    /// # Errors
    /// If the address had used them up before: whole seconds until it may fail again.
    pub fn count(&self, address: IpAddr, now: Instant) -> Result<(), u64> {
        self.0.count(network_of(address), now)
    }

    /// Takes back what was counted for a login that did not fail.
    pub fn take_back(&self, address: IpAddr) {
        self.0.take_back(network_of(address));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
