//! Serial numbers of registrations.

use std::sync::atomic::{AtomicU32, Ordering};

/// Gives out serial numbers, from a random one on, so that programs seldom use the same ones at the same time
/// ([`RegistrationEpoch`](push_model::registration::RegistrationEpoch)).
#[derive(Debug)]
pub(crate) struct Serials(AtomicU32);

impl Serials {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(rand::random()))
    }

    pub(crate) fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
