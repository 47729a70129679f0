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
//! costs no more than looking at it. They are remembered for as long as they count, which is a minute
//! at most, and then the address is forgotten.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use push_service::network::network_of;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Failed logins of an address that are answered: so many at once, and then one for each
/// [`FAILURE_INTERVAL`].
const FAILURES: u32 = 60;
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);

/// Addresses without a connection whose failed logins are remembered, at most.
const REMEMBERED: usize = 65_536;

/// How often addresses are looked for that need not be remembered any more.
const FORGET_INTERVAL: Duration = Duration::from_secs(30);

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

impl AddressCounts {
    /// Whether something of it still counts.
    fn is_needed(&self, now: Instant) -> bool {
        self.connections > 0 || self.failures_until.is_some_and(|end| end > now)
    }
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
        let (address, mut counts) = (network_of(peer), self.counts());
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

    /// Forgets addresses whose failed logins count no more, as long as the listener is in use.
    pub(super) async fn forget_addresses(admission: Weak<Self>) {
        loop {
            tokio::time::sleep(FORGET_INTERVAL).await;
            let Some(admission) = admission.upgrade() else { return };
            admission.counts().forget_unused(Instant::now());
        }
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

    /// Forgets addresses without a connection whose failed logins are paid off.
    fn forget_unused(&mut self, now: Instant) {
        self.addresses.retain(|_, counts| counts.is_needed(now));
        if self.addresses.len() < self.addresses.capacity() / 4 {
            self.addresses.shrink_to_fit();
        }
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
            if !of_address.is_needed(Instant::now()) {
                counts.addresses.remove(&self.address);
            }
        }
    }
}
