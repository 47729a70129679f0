//! Which connections are accepted: bounds in total and for each address.
//!
//! A permit is taken when a connection is accepted and given back when it is dropped, wherever that
//! happens. A connection that has not logged in yet counts twice: as a connection, and among those
//! that have not logged in, which are far fewer, so that idle ones leave room for devices. When
//! there are too many of those, the newest takes the place of the oldest: a device logs in within
//! milliseconds, and idle connections from many addresses must not keep it out.
//!
//! An address is an IPv4 address or an IPv6 network of 64 bits, which is what one customer gets.
//!
//! Failed logins of an address refuse none of its connections: phones behind one address share it
//! with strangers. A wrong login beyond the limit is disconnected without an answer instead, so it
//! costs no more than looking at it.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Failed logins of an address that are answered: so many at once, and then one for each
/// [`FAILURE_INTERVAL`].
const FAILURES: u32 = 60;
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);

/// Addresses without a connection whose failed logins are remembered.
const REMEMBERED: usize = 65_536;

/// The bounds of one listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AdmissionLimits {
    /// Connections.
    pub(super) connections: usize,
    /// Connections of one address.
    pub(super) of_address: usize,
    /// Connections that have not logged in yet.
    pub(super) unauthenticated: usize,
    /// The same of one address.
    pub(super) unauthenticated_of_address: usize,
}

/// Why a connection is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// There are too many in total.
    Total,
    /// There are too many of its address.
    Address,
}

/// Counts the connections of one listener.
#[derive(Debug)]
pub(super) struct Admission {
    limits: AdmissionLimits,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    usage: Usage,
    addresses: HashMap<IpAddr, AddressCounts>,
    /// Those that have not logged in yet, the oldest first.
    logging_in: BTreeMap<u64, LoggingIn>,
    /// Connections so far.
    admitted: u64,
}

#[derive(Debug)]
struct LoggingIn {
    address: IpAddr,
    /// Cancelled when it has to go.
    displaced: CancellationToken,
}

/// What is in use, and what has been refused since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) connections: usize,
    pub(super) unauthenticated: usize,
    pub(super) not_accepted: u64,
    pub(super) failed_logins: u64,
}

#[derive(Debug, Default)]
struct AddressCounts {
    connections: usize,
    unauthenticated: usize,
    /// When the failed logins that were answered will have been paid off (GCRA's theoretical arrival
    /// time).
    failures_until: Option<Instant>,
}

/// The permit of one connection.
#[derive(Debug)]
pub(super) struct Permit {
    admission: Arc<Admission>,
    address: IpAddr,
    /// Which connection of the listener it is.
    number: u64,
    displaced: CancellationToken,
}

impl Admission {
    pub(super) fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// A permit for a connection from this address, which has not logged in yet.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Permit, Full> {
        let (address, mut counts) = (network(peer), self.counts());
        if let Err(full) = counts.admit(address, &self.limits) {
            counts.usage.not_accepted += 1;
            return Err(full);
        }
        counts.admitted += 1;
        let (number, displaced) = (counts.admitted, CancellationToken::new());
        let logging_in = LoggingIn { address, displaced: displaced.clone() };
        counts.logging_in.insert(number, logging_in);
        drop(counts);
        Ok(Permit { admission: self.clone(), address, number, displaced })
    }

    /// What is in use now.
    pub(super) fn usage(&self) -> Usage {
        self.counts().usage
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn admit(&mut self, address: IpAddr, limits: &AdmissionLimits) -> Result<(), Full> {
        if self.usage.connections >= limits.connections {
            return Err(Full::Total);
        }
        if self.addresses.len() >= REMEMBERED + limits.connections {
            self.addresses.retain(|_, counts| counts.connections > 0);
        }
        let of_address = self.addresses.entry(address).or_default();
        if of_address.connections >= limits.of_address
            || of_address.unauthenticated >= limits.unauthenticated_of_address
        {
            return Err(Full::Address);
        }
        of_address.connections += 1;
        of_address.unauthenticated += 1;
        self.usage.connections += 1;
        self.usage.unauthenticated += 1;
        if self.usage.unauthenticated > limits.unauthenticated {
            self.displace_oldest();
        }
        Ok(())
    }

    fn displace_oldest(&mut self) {
        let oldest = self.logging_in.first_key_value().map(|(number, _)| *number);
        if let Some(oldest) = oldest.and_then(|number| self.no_longer_logging_in(number)) {
            oldest.displaced.cancel();
            self.usage.not_accepted += 1;
        }
    }

    /// `None` if the connection has logged in or was displaced before.
    fn no_longer_logging_in(&mut self, number: u64) -> Option<LoggingIn> {
        let ended = self.logging_in.remove(&number)?;
        self.usage.unauthenticated -= 1;
        if let Some(of_address) = self.addresses.get_mut(&ended.address) {
            of_address.unauthenticated -= 1;
        }
        Some(ended)
    }
}

impl Permit {
    /// The connection has logged in.
    pub(super) fn logged_in(&self) {
        self.admission.counts().no_longer_logging_in(self.number);
    }

    /// Cancelled when the connection has not logged in and a newer one takes its place.
    pub(super) fn displaced(&self) -> CancellationToken {
        self.displaced.clone()
    }

    /// Its login has failed. Whether that is answered.
    pub(super) fn login_failed(&self, now: Instant) -> bool {
        let mut counts = self.admission.counts();
        counts.usage.failed_logins += 1;
        let of_address = counts.addresses.entry(self.address).or_default();
        let begin = of_address.failures_until.filter(|end| *end > now).unwrap_or(now);
        let is_answered = begin <= now + FAILURE_INTERVAL * FAILURES;
        if is_answered {
            of_address.failures_until = Some(begin + FAILURE_INTERVAL);
        }
        is_answered
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.admission.counts();
        counts.no_longer_logging_in(self.number);
        counts.usage.connections -= 1;
        if let Some(of_address) = counts.addresses.get_mut(&self.address) {
            of_address.connections -= 1;
            let now = Instant::now();
            if of_address.connections == 0 && of_address.failures_until.is_none_or(|end| end <= now)
            {
                counts.addresses.remove(&self.address);
            }
        }
    }
}

/// What counts as one address.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AdmissionLimits = AdmissionLimits {
        connections: 5,
        of_address: 3,
        unauthenticated: 4,
        unauthenticated_of_address: 2,
    };

    fn admit(admission: &Arc<Admission>, peer: &str) -> Result<Permit, Full> {
        admission.admit(peer.parse().unwrap())
    }

    fn log_in(admission: &Arc<Admission>, peer: &str) -> Permit {
        let permit = admit(admission, peer).unwrap();
        permit.logged_in();
        permit
    }

    #[tokio::test]
    async fn idle_connections_of_one_address_leave_room_for_its_devices_and_for_others() {
        let admission = Admission::new(LIMITS);
        let idle = [admit(&admission, "10.0.0.1").unwrap(), admit(&admission, "10.0.0.1").unwrap()];
        assert_eq!(admit(&admission, "10.0.0.1").unwrap_err(), Full::Address);
        let others =
            [admit(&admission, "10.0.0.2").unwrap(), admit(&admission, "10.0.0.3").unwrap()];
        let late = admit(&admission, "10.0.0.4").unwrap();
        assert!(idle[0].displaced().is_cancelled(), "the newest takes the place of the oldest");
        late.logged_in();
        assert_eq!(admit(&admission, "10.0.0.5").unwrap_err(), Full::Total);
        assert!(
            [&idle[1], &others[0], &others[1], &late]
                .map(Permit::displaced)
                .iter()
                .all(|it| !it.is_cancelled())
        );
        drop((idle, others, late));
        let usage = admission.usage();
        assert_eq!((usage.connections, usage.unauthenticated, usage.not_accepted), (0, 0, 3));
        assert!(admission.counts().addresses.is_empty());
    }

    #[tokio::test]
    async fn connections_of_an_address_and_in_total_are_bounded_and_given_back() {
        let admission = Admission::new(LIMITS);
        let mut one: Vec<Permit> = (0..3).map(|_| log_in(&admission, "10.0.0.1")).collect();
        assert_eq!(admit(&admission, "10.0.0.1").unwrap_err(), Full::Address);
        let two: Vec<Permit> = (0..2).map(|_| log_in(&admission, "10.0.0.2")).collect();
        assert_eq!(admit(&admission, "10.0.0.3").unwrap_err(), Full::Total);
        one.pop();
        assert!(admit(&admission, "10.0.0.1").is_ok());
        drop((one, two));
        let usage = admission.usage();
        assert_eq!((usage.connections, usage.unauthenticated, usage.not_accepted), (0, 0, 2));
        assert!(admission.counts().addresses.is_empty());
    }

    #[tokio::test]
    async fn an_address_is_one_customer_in_ipv6_and_the_same_in_both_families() {
        let admission = Admission::new(LIMITS);
        let _permits = [
            admit(&admission, "2001:db8:0:1::1").unwrap(),
            admit(&admission, "2001:db8:0:1:ffff::2").unwrap(),
            admit(&admission, "::ffff:10.0.0.1").unwrap(),
        ];
        assert_eq!(admit(&admission, "2001:db8:0:1:2::3").unwrap_err(), Full::Address);
        assert!(admit(&admission, "2001:db8:0:2::1").is_ok());
        let _second = admit(&admission, "10.0.0.1").unwrap();
        assert_eq!(admission.counts().addresses.len(), 2);
    }

    #[tokio::test]
    async fn an_address_that_fails_to_log_in_too_often_is_not_answered_and_others_are() {
        let admission = Admission::new(LIMITS);
        let now = Instant::now();
        let fail = |peer, now| admit(&admission, peer).unwrap().login_failed(now);
        for _ in 0..=FAILURES {
            assert!(fail("10.0.0.1", now));
        }
        assert!(!fail("10.0.0.1", now) && !fail("10.0.0.1", now));
        assert!(fail("10.0.0.2", now));
        assert!(fail("10.0.0.1", now + FAILURE_INTERVAL), "one more, however many came meanwhile");
        assert!(!fail("10.0.0.1", now + FAILURE_INTERVAL));
    }
}
