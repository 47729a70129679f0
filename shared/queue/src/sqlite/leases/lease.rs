//! The knowledge of a holder about its own lease, without reading the file.
//!
//! Other holders take deliveries back when they have seen the same heartbeat for a whole lease.
//! They saw it at its commit at the earliest, so they do not do it within a lease after the
//! heartbeat was
//! *begun*. If this process was stalled for longer they may have: then its next write finds that
//! the holder's row is gone, and all claims before that write are lost for good.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The lease of one holder.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Identifies the holder among all in the file.
    pub(crate) holder: i64,
    length: Duration,
    state: Mutex<LeaseState>,
}

#[derive(Debug)]
struct LeaseState {
    /// When the last heartbeat that was stored was begun.
    renewed: Option<Instant>,
    /// Claims with a lower number are not held any more.
    first_held: i64,
    next_claim: i64,
}

impl Lease {
    pub(crate) fn new(holder: i64, length: Duration) -> Self {
        let state = LeaseState { renewed: None, first_held: 0, next_claim: 0 };
        Self { holder, length, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no claim of this holder had before. Claims are numbered while they are
    /// written, so a claim with a larger number was written later.
    pub(crate) fn next_claim(&self) -> i64 {
        let mut state = self.state();
        let number = state.next_claim;
        state.next_claim += 1;
        number
    }

    /// Notes that a heartbeat was stored, and when it was begun.
    pub(crate) fn renewed(&self, begun: Instant) {
        self.state().renewed = Some(begun);
    }

    /// Notes that the file had no row of this holder: all claims with a lower number than
    /// `first_held` were taken back.
    pub(crate) fn mark_lost(&self, first_held: i64) {
        let mut state = self.state();
        state.first_held = state.first_held.max(first_held);
    }

    /// Returns true if a claim certainly holds.
    pub(crate) fn covers(&self, claim: i64, now: Instant) -> bool {
        let state = self.state();
        let fresh = state.renewed.is_some_and(|begun| now.duration_since(begun) < self.length);
        fresh && claim >= state.first_held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(10);

    #[test]
    fn a_claim_is_covered_for_a_lease_after_each_heartbeat() {
        let (lease, start) = (Lease::new(1, LENGTH), Instant::now());
        let claim = lease.next_claim();
        assert!(!lease.covers(claim, start), "there was no heartbeat yet");
        lease.renewed(start);
        assert!(lease.covers(claim, start + LENGTH - Duration::from_millis(1)));
        assert!(!lease.covers(claim, start + LENGTH));
        lease.renewed(start + LENGTH);
        assert!(lease.covers(claim, start + LENGTH), "no other holder had taken it back");
    }

    #[test]
    fn what_was_claimed_before_the_lease_was_lost_is_not_held_again() {
        let (lease, start) = (Lease::new(1, LENGTH), Instant::now());
        lease.renewed(start);
        let (before, after) = (lease.next_claim(), lease.next_claim());
        lease.mark_lost(after);
        assert!(!lease.covers(before, start) && lease.covers(after, start));
    }
}
