//! How many HTTP/2 requests are in work over all connections.
//!
//! Each connection has a bound of its own (`--h2-streams`). Ten thousand connections that reach it
//! are two million requests, so all of them have a bound together: as many as there may be
//! connections. Over HTTP/1 a connection has one request at a time, so a client of either version
//! finds room for one over each connection that is served, whatever the others do: the first
//! request of an HTTP/2 connection is not counted.
//!
//! A request counts until its answer was sent: an answer occupies memory for as long as its client
//! gives it no window. The answers that refuse a request wait in the same way, so a connection may
//! have a few of them; the streams of further requests are reset instead.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits for the requests of one connection.
#[derive(Debug)]
pub(super) struct RequestPermits {
    /// For one request, of this connection only.
    own: Arc<Semaphore>,
    /// For requests beside that one, of all connections.
    shared: Arc<Semaphore>,
    /// For answers that refuse a request of this connection.
    refusals: Arc<Semaphore>,
}

/// How many answers that refuse a request may wait for the window of one connection.
const REFUSALS: usize = 16;

impl RequestPermits {
    pub(super) fn new(shared: Arc<Semaphore>) -> Self {
        let [own, refusals] = [1, REFUSALS].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { own, shared, refusals }
    }

    /// A permit for one more request, which lasts until it is dropped. None if too many requests of
    /// all connections are in work, and one of this connection.
    pub(super) fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        let acquire = |permits: &Arc<Semaphore>| Arc::clone(permits).try_acquire_owned();
        acquire(&self.own).or_else(|_| acquire(&self.shared)).ok()
    }

    /// A permit for an answer that refuses a request.
    pub(super) fn refuse(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.refusals).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_a_request_however_many_others_have() {
        let shared = Arc::new(Semaphore::new(2));
        let [many, few] = [(); 2].map(|()| RequestPermits::new(Arc::clone(&shared)));
        let mut of_many: Vec<_> = (0..3).map(|_| many.acquire().unwrap()).collect();
        assert!(many.acquire().is_none());
        let of_few = few.acquire().unwrap();
        assert!(few.acquire().is_none());
        of_many.pop();
        let more = few.acquire();
        assert!(more.is_some() && many.acquire().is_none());
        drop(of_few);
        assert!(few.acquire().is_some(), "its own permit came back, whatever others hold");
    }
}
