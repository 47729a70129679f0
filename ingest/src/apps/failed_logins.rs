//! Failed logins: requests with a wrong secret for their app, counted for each address.
//!
//! A secret has 256 random bits and is not guessed. But the work has to be bounded: each invented
//! App ID would make the index look for an app. An address that has used up its failed logins costs
//! the index nothing more ([`AppCache::get`](super::cache::AppCache::get)).
//!
//! Other clients may share the address, behind a proxy. So the bound refuses no request whose secret
//! is right, and a request for an app whose record is cached does not even look here.
//!
//! Two addresses that share a counter (`counters`) share a bound, which does no harm for the same reason.

use std::{net::IpAddr, num::NonZeroU32};

use tokio::time::Instant;

use super::counters::Counters;
use crate::client::Client;

/// The number of counters.
const COUNTERS: usize = 16_384;

/// The failed logins of all addresses.
#[derive(Debug)]
pub(super) struct FailedLogins(Counters);

impl FailedLogins {
    /// Allows each address so many in a minute.
    pub(super) fn new(a_minute: Option<NonZeroU32>, now: Instant) -> Self {
        Self(Counters::new(COUNTERS, a_minute, now))
    }

    /// Counts a failed login.
    ///
    /// # Errors
    /// If the address had used them up before: whole seconds until it may fail again.
    pub(super) fn count(&self, address: IpAddr, now: Instant) -> Result<(), u64> {
        self.0.count(Client::of(address), now)
    }

    /// Takes back what was counted for a login that did not fail.
    pub(super) fn take_back(&self, address: IpAddr) {
        self.0.take_back(Client::of(address));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(a_minute: u32, now: Instant) -> FailedLogins {
        FailedLogins::new(NonZeroU32::new(a_minute), now)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_may_fail_so_often_in_a_minute_and_is_then_told_when_to_come_back() {
        let start = Instant::now();
        let logins = of(3, start);
        let one = address("192.0.2.1");
        for _ in 0..3 {
            assert_eq!(logins.count(one, start), Ok(()));
        }
        assert_eq!(logins.count(one, start), Err(20));
        let later = start + Duration::from_secs(20);
        assert_eq!(logins.count(one, later), Ok(()), "what was refused does not count");
        assert_eq!(logins.count(one, later), Err(20));
        logins.take_back(one);
        assert_eq!(logins.count(one, later), Ok(()), "nor does a login that did not fail");
        assert_eq!(logins.count(one, later), Err(20));
    }

    #[test]
    fn addresses_are_counted_apart_and_those_of_one_ipv6_network_together() {
        let start = Instant::now();
        let logins = of(1, start);
        assert_eq!(logins.count(address("2001:db8:1:2::1"), start), Ok(()));
        assert!(logins.count(address("2001:db8:1:2:ffff::9"), start).is_err());
        assert_eq!(logins.count(address("192.0.2.1"), start), Ok(()));
        assert!(logins.count(address("::ffff:192.0.2.1"), start).is_err());
        // A few of them may share a counter.
        let others = (0..100).map(|n| address(&format!("2001:db8:2:{n:x}::1")));
        assert!(others.filter(|other| logins.count(*other, start).is_err()).count() < 5);
    }

    #[test]
    fn without_a_bound_nothing_is_used_up() {
        let start = Instant::now();
        let logins = FailedLogins::new(None, start);
        let one = address("192.0.2.1");
        assert!((0..1000).all(|_| logins.count(one, start).is_ok()));
        logins.take_back(one);
    }
}
