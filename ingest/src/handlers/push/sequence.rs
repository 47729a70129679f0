//! The number by which a device sorts the messages that it received.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// Numbers pushes in the order in which they are accepted: the wall clock in microseconds, or one more
/// than the last number if the clock has not moved on or was set back.
#[derive(Debug, Default)]
pub(in crate::handlers) struct Sequence(AtomicU64);

impl Sequence {
    /// The number of a push that is accepted now.
    pub(super) fn next(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.next_at(u64::try_from(since.as_micros()).unwrap_or_default())
    }

    fn next_at(&self, now: u64) -> u64 {
        let after = |last: u64| last.saturating_add(1).max(now);
        let last =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
        // The closure always gives a number, so the last one is in either variant.
        after(last.unwrap_or_else(|last| last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_increase_though_the_clock_stands_still_or_is_set_back() {
        let sequence = Sequence::default();
        let numbers = [50, 50, 50, 20, 52, 53, 90].map(|now| sequence.next_at(now));
        assert_eq!(numbers, [50, 51, 52, 53, 54, 55, 90]);
    }

    #[test]
    fn pushes_that_are_accepted_together_have_numbers_of_their_own() {
        let sequence = Sequence::default();
        let mut numbers: Vec<u64> = std::thread::scope(|scope| {
            let next = || (0..1000).map(|_| sequence.next()).collect::<Vec<_>>();
            let threads = [(); 4].map(|()| scope.spawn(next));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 4000);
    }
}
