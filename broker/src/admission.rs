//! Which connections are accepted: bounds in total and for each address.
//!
//! A permit is taken when a connection is accepted and given back when it is dropped, wherever that
//! happens. A connection that has not logged in yet counts twice: as a connection, and among those
//! that have not logged in, which are far fewer, so that idle ones leave room for devices. When a bound
//! is reached, a new connection takes the place of one that has not logged in, which `pending` chooses:
//! a device logs in within milliseconds, and idle connections must not keep it out, whether they come
//! from many addresses or from that of the device.
//!
//! An address is an IPv4 address or an IPv6 network of 64 bits, which is what one customer gets.
//!
//! Failed logins of an address refuse none of its connections: phones behind one address share it
//! with strangers. A wrong login beyond the limit is disconnected without an answer instead, so it
//! costs no more than looking at it. They are remembered for as long as they count, which is a minute
//! at most, and then the address is forgotten.

mod pending;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use push_boot::network::network_of;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::pending::{PendingLogins, Stage};

/// Failed logins of an address that are answered: so many at once, and then one for each
/// [`FAILURE_INTERVAL`].
const FAILURES: u32 = 60;
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);

/// Addresses without a connection whose failed logins are remembered, at most.
const REMEMBERED: usize = 65_536;

/// How often addresses are looked for that need not be remembered any more.
const FORGET_INTERVAL: Duration = Duration::from_secs(30);

/// Displaced connections that have not ended yet, at most, beyond the bound of connections. They end as
/// soon as their tasks run.
const ENDING: usize = 64;

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
    connections: usize,
    addresses: HashMap<IpAddr, AddressCounts>,
    /// Those that have not logged in yet.
    pending: PendingLogins,
    /// Displaced ones that have not ended yet. They count as nothing else.
    ending: usize,
    /// Connections so far.
    admitted: u64,
    displaced: u64,
    not_accepted: u64,
    failed_logins: u64,
}

/// What is in use, and what has been refused since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) connections: usize,
    pub(super) unauthenticated: usize,
    /// Connections in whose place a new one was accepted.
    pub(super) displaced: u64,
    pub(super) not_accepted: u64,
    pub(super) failed_logins: u64,
}

#[derive(Debug, Default)]
struct AddressCounts {
    connections: usize,
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
        if let Err(full) = counts.make_room(address, &self.limits) {
            counts.not_accepted += 1;
            return Err(full);
        }
        counts.admitted += 1;
        counts.connections += 1;
        counts.addresses.entry(address).or_default().connections += 1;
        let (number, displaced) = (counts.admitted, CancellationToken::new());
        counts.pending.add(number, address, displaced.clone());
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
        let counts = self.counts();
        Usage {
            connections: counts.connections,
            unauthenticated: counts.pending.len(),
            displaced: counts.displaced,
            not_accepted: counts.not_accepted,
            failed_logins: counts.failed_logins,
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Makes room for one more connection of this address: if there is none, another connection that
    /// has not logged in has to go.
    fn make_room(&mut self, address: IpAddr, limits: &AdmissionLimits) -> Result<(), Full> {
        if self.addresses.len() >= REMEMBERED + limits.connections {
            self.addresses.retain(|_, counts| counts.connections > 0);
        }
        let of_address = self.addresses.get(&address).map_or(0, |counts| counts.connections);
        let displaced = if of_address >= limits.of_address
            || self.pending.of_address(address) >= limits.unauthenticated_of_address
        {
            self.may_displace(Full::Address)?;
            self.pending.displace_of(address).then_some(address).ok_or(Full::Address)?
        } else if self.connections >= limits.connections
            || self.pending.len() >= limits.unauthenticated
        {
            self.may_displace(Full::Total)?;
            self.pending.displace_any().ok_or(Full::Total)?
        } else {
            return Ok(());
        };
        self.displaced += 1;
        self.ending += 1;
        self.give_back(displaced);
        Ok(())
    }

    /// Those that are displaced have their descriptors until they end.
    fn may_displace(&self, full: Full) -> Result<(), Full> {
        if self.ending < ENDING { Ok(()) } else { Err(full) }
    }

    /// A connection of this address counts no more.
    fn give_back(&mut self, address: IpAddr) {
        self.connections -= 1;
        if let Some(of_address) = self.addresses.get_mut(&address) {
            of_address.connections -= 1;
            if !of_address.is_needed(Instant::now()) {
                self.addresses.remove(&address);
            }
        }
    }

    /// Forgets addresses without a connection whose failed logins are paid off.
    fn forget_unused(&mut self, now: Instant) {
        self.addresses.retain(|_, counts| counts.is_needed(now));
        if self.addresses.len() < self.addresses.capacity() / 4 {
            self.addresses.shrink_to_fit();
        }
    }
}

impl Permit {
    /// The client has sent something.
    pub(super) fn client_spoke(&self) {
        self.admission.counts().pending.advance(self.number, Stage::Speaking);
    }

    /// The client's TLS hello is complete.
    pub(super) fn client_greeted(&self) {
        self.admission.counts().pending.advance(self.number, Stage::Greeted);
    }

    /// The login is refused. Closing the connection may take a while.
    pub(super) fn refused(&self) {
        self.admission.counts().pending.advance(self.number, Stage::Refused);
    }

    /// All of CONNECT has come and is to be checked. `false` if the connection was displaced before; from
    /// here on it is not.
    pub(super) fn begin_check(&self) -> bool {
        self.admission.counts().pending.advance(self.number, Stage::Checked)
    }

    /// The connection has logged in.
    pub(super) fn logged_in(&self) {
        self.admission.counts().pending.remove(self.number);
    }

    /// Cancelled when the connection has not logged in and a newer one takes its place.
    pub(super) fn displaced(&self) -> CancellationToken {
        self.displaced.clone()
    }

    /// Its login has failed. Whether that is answered.
    pub(super) fn login_failed(&self, now: Instant) -> bool {
        let mut counts = self.admission.counts();
        counts.failed_logins += 1;
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
        if self.displaced.is_cancelled() {
            counts.ending -= 1;
        } else {
            counts.pending.remove(self.number);
            counts.give_back(self.address);
        }
    }
}
