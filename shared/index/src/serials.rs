//! Serial numbers of registrations.

use std::sync::atomic::{AtomicU64, Ordering};

use push_model::registration::Serial;

/// Gives out serial numbers, from a random one on, so that programs seldom use the same ones at the same time
/// ([`RegistrationEpoch`](push_model::registration::RegistrationEpoch)).
#[derive(Debug)]
pub(crate) struct Serials(AtomicU64);

impl Serials {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(rand::random()))
    }

    pub(crate) fn next(&self) -> Serial {
        Serial::of(self.0.fetch_add(1, Ordering::Relaxed))
    }
}
