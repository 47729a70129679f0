//! Bounds the HTTP/2 requests in work over all connections.
//!
//! Each connection has a bound of its own (`--tune h2-streams`). Ten thousand connections that reach it
//! are two million requests, so all of them have a bound together: as many as there may be
//! connections. Over HTTP/1 a connection has one request at a time, so a client of either version
//! finds room for one over each connection that is served, whatever the others do: the first
//! request of an HTTP/2 connection is not counted.
//!
//! - A quarter of all is for requests whose secret was not looked at. One address may have half of
//!   it.
//! - When that is used up, the secret is checked first. Requests of an app find room in the other three
//!   quarters, and count against its share of the memory for bodies.
//!
//! So clients without a secret, however many, take nothing from those with one, nor does one app from
//! the others.
//!
//! A request counts until its answer was sent: an answer occupies memory for as long as its client
//! gives it no window. The answers that refuse a request wait in the same way, so a connection may
//! have a few of them; the streams of further requests are reset instead.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    body::{AppMemory, Purpose, Reservation},
    server::admission::AddressShare,
};

/// The share of all requests whose secret need not be checked first.
const UNCHECKED_SHARE: usize = 4;
/// The share of those that one address may have.
const ADDRESS_SHARE: usize = 2;
/// The part of its app's memory for bodies that a request beyond them takes, in bytes: about what its state, its
/// head and its answer take. A quarter of the default memory is 4096 such requests.
const REQUEST_MEMORY: usize = 8 * 1024;
/// The most answers that refuse a request and wait for the window of one connection.
const REFUSALS: usize = 16;

/// Returns how many of so many requests may be without a checked secret.
fn unchecked_of(all: usize) -> usize {
    all.div_ceil(UNCHECKED_SHARE)
}

pub(in crate::server) fn unchecked_per_address(all: usize) -> usize {
    unchecked_of(all).div_ceil(ADDRESS_SHARE)
}

/// The permits for the requests of all connections, beside the first one of each.
#[derive(Debug)]
pub(in crate::server) struct RequestPools {
    all: Arc<Semaphore>,
    unchecked: Arc<Semaphore>,
    /// For requests whose secret is being checked. No client can hold one: a check waits for the
    /// index only.
    checks: Arc<Semaphore>,
}

impl RequestPools {
    pub(in crate::server) fn new(all: usize) -> Self {
        let [unchecked, checks] = [unchecked_of(all), all].map(|n| Arc::new(Semaphore::new(n)));
        Self { all: Arc::new(Semaphore::new(all)), unchecked, checks }
    }
}

/// The permits for the requests of one connection.
#[derive(Debug, Clone)]
pub(super) struct RequestPermits {
    /// For one request, of this connection only.
    own: Arc<Semaphore>,
    pools: Arc<RequestPools>,
    address: Arc<AddressShare>,
    /// For answers that refuse a request of this connection.
    refusals: Arc<Semaphore>,
}

/// A request in work, or an answer that refuses one, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    _permits: [Option<OwnedSemaphorePermit>; 3],
    _memory: Option<Reservation>,
}

impl RequestPermits {
    pub(super) fn new(pools: Arc<RequestPools>, address: Arc<AddressShare>) -> Self {
        let [own, refusals] = [1, REFUSALS].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { own, pools, address, refusals }
    }

    /// Takes a permit for a request whose secret was not looked at. Returns `None` if such requests have all that they
    /// may, and one of this connection is in work.
    pub(super) fn acquire(&self) -> Option<Permit> {
        if let Some(own) = acquire(&self.own) {
            return Some(Permit { _permits: [Some(own), None, None], _memory: None });
        }
        let address = acquire(self.address.requests())?;
        let unchecked = acquire(&self.pools.unchecked)?;
        let one_of_all = acquire(&self.pools.all)?;
        let permits = [Some(one_of_all), Some(unchecked), Some(address)];
        Some(Permit { _permits: permits, _memory: None })
    }

    /// A permit for checking the secret of a request.
    pub(super) fn check(&self) -> Option<OwnedSemaphorePermit> {
        acquire(&self.pools.checks)
    }

    /// Takes a permit for a request of the app that this memory belongs to. Returns `None` if the app has as many as it may, or
    /// all together have.
    pub(super) fn acquire_for(&self, app: &Arc<AppMemory>) -> Option<Permit> {
        let one_of_all = acquire(&self.pools.all)?;
        let mut memory = Reservation::empty(app, Purpose::Single);
        memory.grow(REQUEST_MEMORY).ok()?;
        Some(Permit { _permits: [Some(one_of_all), None, None], _memory: Some(memory) })
    }

    /// Takes a permit for an answer that refuses a request.
    pub(super) fn refuse(&self) -> Option<Permit> {
        let refusal = acquire(&self.refusals)?;
        Some(Permit { _permits: [Some(refusal), None, None], _memory: None })
    }
}

fn acquire(permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(permits).try_acquire_owned().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::tests::memory;

    fn connection(pools: &Arc<RequestPools>, address: &Arc<AddressShare>) -> RequestPermits {
        RequestPermits::new(Arc::clone(pools), Arc::clone(address))
    }

    fn all(permits: &RequestPermits) -> Vec<Permit> {
        std::iter::from_fn(|| permits.acquire()).collect()
    }

    #[test]
    fn each_connection_has_a_request_however_many_others_have() {
        let (pools, address) = (Arc::new(RequestPools::new(8)), Arc::new(AddressShare::new(1)));
        let [many, few] = [(); 2].map(|()| connection(&pools, &address));
        let mut of_many = all(&many);
        assert_eq!(of_many.len(), 2, "its own, and one of its address");
        let of_few = few.acquire().unwrap();
        assert!(few.acquire().is_none());
        of_many.pop();
        let more = few.acquire();
        assert!(more.is_some() && many.acquire().is_none());
        drop(of_few);
        assert!(few.acquire().is_some(), "its own permit came back, whatever others hold");
    }

    #[test]
    fn requests_without_a_secret_leave_three_quarters_to_those_with_one() {
        let pools = Arc::new(RequestPools::new(80));
        let mut held = Vec::new();
        for _ in 0..20 {
            let address = Arc::new(AddressShare::new(unchecked_per_address(80)));
            held.extend(all(&connection(&pools, &address)));
        }
        assert_eq!(held.len(), 20 + 20, "the first of each connection, and a quarter");
        let [app, other] = [(); 2]
            .map(|()| Arc::new(AppMemory::new(&memory(100 * REQUEST_MEMORY, 40 * REQUEST_MEMORY))));
        let connection = connection(&pools, &Arc::new(AddressShare::new(0)));
        let of = |app| std::iter::from_fn(|| connection.acquire_for(app)).collect::<Vec<_>>();
        let (of_app, of_other) = (of(&app), of(&other));
        assert_eq!((of_app.len(), of_other.len()), (40, 20), "one app leaves room to others");
    }
}
