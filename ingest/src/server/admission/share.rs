//! The share of one address: the resources that its connections hold together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Semaphore;

/// The bytes of incomplete HTTP/2 heads on all connections of one address. A head of a push has some hundred
/// bytes and comes in one piece.
const HEAD_BYTES: usize = 2 * 1024 * 1024;

/// The share of one address.
#[derive(Debug)]
pub(in crate::server) struct AddressShare {
    /// For HTTP/2 requests whose secret was not checked.
    requests: Arc<Semaphore>,
    head_bytes: AtomicUsize,
}

impl AddressShare {
    /// A share with so many concurrent requests.
    pub(in crate::server) fn new(requests: usize) -> Self {
        Self { requests: Arc::new(Semaphore::new(requests)), head_bytes: AtomicUsize::new(0) }
    }

    /// The permits for its HTTP/2 requests whose secret was not checked.
    pub(in crate::server) fn requests(&self) -> &Arc<Semaphore> {
        &self.requests
    }

    /// Takes this many bytes of incomplete heads. Returns false if the address holds too many.
    pub(in crate::server) fn hold(&self, bytes: usize) -> bool {
        let held = |held: usize| held.checked_add(bytes).filter(|held| *held <= HEAD_BYTES);
        self.head_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, held).is_ok()
    }

    /// Gives bytes back.
    pub(in crate::server) fn release(&self, bytes: usize) {
        self.head_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
