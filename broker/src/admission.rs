//! Bounds on connections, in total and for each address.
//!
//! A connection takes a permit when it is accepted and returns it on drop. Until it has logged in it also
//! counts against a second, much lower bound, so idle connections leave room for devices. When a bound is
//! reached, a new connection displaces one that has not logged in; `pending` chooses which. A device logs
//! in within milliseconds, and idle connections must not keep it out, whether they come from many
//! addresses or from its own.
//!
//! An address is an IPv4 address or an IPv6 network of 64 bits, which is what one customer gets.
//!
//! Failed logins never block an address, because unrelated phones may share it. Beyond the limit, a wrong
//! login is disconnected without an answer, so it costs no more than the check. Failures count for at
//! most a minute, and then the address is forgotten.

mod pending;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use push_boot::{
    failed_logins::{FailedLoginCount, FailedLogins},
    network::network_of,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::pending::{PendingLogins, Stage};

/// Failed logins of an address that are answered: this many in a burst, then one per
/// [`FAILURE_INTERVAL`].
const FAILURES: u32 = 60;
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);

/// The most addresses without a connection whose failed logins are remembered.
const REMEMBERED: usize = 65_536;

/// Time between two searches for addresses that can be forgotten.
const FORGET_INTERVAL: Duration = Duration::from_secs(30);

/// The most displaced connections that have not ended yet, on top of the bound. They end as soon as
/// their tasks run.
const ENDING: usize = 64;

/// The bounds of one listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AdmissionLimits {
    /// All connections.
    pub(super) connections: usize,
    /// Connections of one address.
    pub(super) of_address: usize,
    /// Connections that have not logged in yet.
    pub(super) unauthenticated: usize,
    /// Connections of one address that have not logged in yet.
    pub(super) unauthenticated_of_address: usize,
}

/// The bound because of which a connection is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The bound in total.
    Total,
    /// The bound of its address.
    Address,
}

/// Counts the connections of one listener.
#[derive(Debug)]
pub(super) struct Admission {
    limits: AdmissionLimits,
    counts: Mutex<Counts>,
    /// The failed logins until they are logged.
    failed_logins: FailedLoginCount,
}

#[derive(Debug, Default)]
struct Counts {
    connections: usize,
    addresses: HashMap<IpAddr, AddressCounts>,
    /// Connections that have not logged in yet.
    pending: PendingLogins,
    /// Displaced connections that have not ended yet. They count nowhere else.
    ending: usize,
    /// Connections since the start.
    admitted: u64,
    displaced: u64,
    not_accepted: u64,
    failed_logins: u64,
}

/// Connections now, and refusals since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) connections: usize,
    pub(super) unauthenticated: usize,
    /// Connections that a newer one displaced.
    pub(super) displaced: u64,
    pub(super) not_accepted: u64,
    pub(super) failed_logins: u64,
}

#[derive(Debug, Default)]
struct AddressCounts {
    connections: usize,
    /// The time until which answered failures count (GCRA's theoretical arrival time).
    failures_until: Option<Instant>,
}

impl AddressCounts {
    /// Returns true if a connection or a failure still counts.
    fn is_needed(&self, now: Instant) -> bool {
        self.connections > 0 || self.failures_until.is_some_and(|end| end > now)
    }
}

/// The permit of one connection.
#[derive(Debug)]
pub(super) struct Permit {
    admission: Arc<Admission>,
    address: IpAddr,
    /// The number of the connection at its listener.
    number: u64,
    displaced: CancellationToken,
}

impl Admission {
    pub(super) fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            counts: Mutex::default(),
            failed_logins: FailedLoginCount::default(),
        })
    }

    /// Returns a permit for a new connection from this address.
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

    /// Takes the failed logins since the last call.
    pub(super) fn take_failed_logins(&self) -> FailedLogins {
        self.failed_logins.take()
    }

    /// Forgets addresses whose failures no longer count, at intervals, while the listener is in use.
    pub(super) async fn forget_addresses(admission: Weak<Self>) {
        loop {
            tokio::time::sleep(FORGET_INTERVAL).await;
            let Some(admission) = admission.upgrade() else { return };
            admission.counts().forget_unused(Instant::now());
        }
    }

    /// Returns the present counts.
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
    /// Makes room for one more connection of this address, by displacing one that has not logged in if a
    /// bound is reached.
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

    /// Displaced connections keep their descriptors until they end, so their number is bounded.
    fn may_displace(&self, full: Full) -> Result<(), Full> {
        if self.ending < ENDING { Ok(()) } else { Err(full) }
    }

    /// Stops counting a connection of this address.
    fn give_back(&mut self, address: IpAddr) {
        self.connections -= 1;
        if let Some(of_address) = self.addresses.get_mut(&address) {
            of_address.connections -= 1;
            if !of_address.is_needed(Instant::now()) {
                self.addresses.remove(&address);
            }
        }
    }

    /// Forgets addresses without a connection whose failures no longer count.
    fn forget_unused(&mut self, now: Instant) {
        self.addresses.retain(|_, counts| counts.is_needed(now));
        if self.addresses.len() < self.addresses.capacity() / 4 {
            self.addresses.shrink_to_fit();
        }
    }
}

impl Permit {
    /// Notes that the client has sent something.
    pub(super) fn client_spoke(&self) {
        self.admission.counts().pending.advance(self.number, Stage::Speaking);
    }

    /// Notes that the client's TLS hello is complete.
    pub(super) fn client_greeted(&self) {
        self.admission.counts().pending.advance(self.number, Stage::Greeted);
    }

    /// Notes that the login is refused. Closing the connection may take a while.
    pub(super) fn refused(&self) {
        self.admission.counts().pending.advance(self.number, Stage::Refused);
    }

    /// Notes that CONNECT has arrived and is about to be checked; from then on the connection is not
    /// displaced. Returns false if it was displaced before.
    pub(super) fn begin_check(&self) -> bool {
        self.admission.counts().pending.advance(self.number, Stage::Checked)
    }

    /// Notes that the connection has logged in.
    pub(super) fn logged_in(&self) {
        self.admission.counts().pending.remove(self.number);
    }

    /// Returns the token that is cancelled when a newer connection displaces this one.
    pub(super) fn displaced(&self) -> CancellationToken {
        self.displaced.clone()
    }

    /// Counts a failed login. Returns true if the client gets an answer.
    pub(super) fn login_failed(&self, now: Instant) -> bool {
        self.admission.failed_logins.add(Some(self.address));
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
