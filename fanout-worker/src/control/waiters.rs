//! Who waits for a server that is away. An outage is one event of the log, however many messages
//! wait for its end.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Counts who waits for one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiters(Arc<AtomicUsize>);

/// One that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiter(Option<Arc<AtomicUsize>>);

impl Waiters {
    /// Begins to wait. True if no other waited before.
    pub(crate) fn enter(&self) -> (Waiter, bool) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        (Waiter(Some(Arc::clone(&self.0))), before == 0)
    }
}

impl Waiter {
    /// Ends the wait, because the server answers. True if no other waits any more.
    pub(crate) fn leave(mut self) -> bool {
        self.0.take().is_some_and(|waiters| waiters.fetch_sub(1, Ordering::Relaxed) == 1)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(waiters) = &self.0 {
            waiters.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_begins_with_the_first_that_waits_and_ends_with_the_last() {
        let waiters = Waiters::default();
        let (first, is_first) = waiters.enter();
        let (second, is_second_first) = waiters.enter();
        assert_eq!((is_first, is_second_first), (true, false));
        assert!(!first.leave());
        drop(second);
        let (third, is_first) = waiters.enter();
        assert!(is_first, "the one before has given up");
        assert!(third.leave());
    }
}
