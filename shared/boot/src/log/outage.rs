//! The outage of a server as one event of the log, however many requests fail meanwhile.
//!
//! A server may do some of what it is asked and refuse the rest: a Redis that became a replica
//! answers reads, and in a cluster one master may be away. If each answer ended the outage, each
//! failure after it would be logged as a new one. So an answer ends an outage only if no request
//! that failed is still waiting to be made again ([`Outage::wait`]), and, for a program that refuses
//! what fails in place of waiting, if nothing has failed for [`QUIET`].
//!
//! A server that cannot be reached may come back and then refuse for another reason. So an outage is
//! one event for each kind of failure: the first of each kind is logged as a warning.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// The time without a failure after which an answer ends an outage
/// ([`Outage::of_refused_requests`]).
pub const QUIET: Duration = Duration::from_secs(10);

/// The outage of one server, as the requests to it show it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Outage(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// True during an outage, so that an answer costs no lock otherwise.
    is_on: AtomicBool,
    state: Mutex<OutageState>,
    quiet: Duration,
}

#[derive(Debug, Default)]
struct OutageState {
    current: Option<Current>,
    /// The requests that wait to be made again.
    waiting: usize,
}

/// An outage that has not ended.
#[derive(Debug)]
struct Current {
    began: Instant,
    last_failure: Instant,
    /// The time of the first answer after the last failure.
    answered: Option<Instant>,
    failed: u64,
    /// The kinds of its failures; there are few.
    kinds: Vec<&'static str>,
}

/// A request that waits until the server answers. It gives up when this is dropped.
#[derive(Debug)]
pub struct Waiting(Outage);

/// An outage that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// From the first failure to the first answer after the last one.
    pub lasted: Duration,
    /// The number of failures, in the unit of [`Outage::failed`].
    pub failed: u64,
}

impl Outage {
    /// For a program that refuses a request when the server fails. The outage counts as over once
    /// nothing has failed for [`QUIET`].
    pub fn of_refused_requests() -> Self {
        Self(Arc::new(Shared { quiet: QUIET, ..Shared::default() }))
    }

    /// Notes that a request failed in a way of this kind, and `count` pieces of work with it. True if it is
    /// the first of its kind in an outage: only that is to be logged as a warning
    /// ([`log_failure`](crate::log_failure)).
    pub fn failed(&self, count: usize, kind: &'static str) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        let current = state.current.get_or_insert_with(|| Current {
            began: now,
            last_failure: now,
            answered: None,
            failed: 0,
            kinds: Vec::new(),
        });
        let is_first = !current.kinds.contains(&kind);
        if is_first {
            current.kinds.push(kind);
        }
        (current.last_failure, current.answered) = (now, None);
        current.failed = current.failed.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        self.0.is_on.store(true, Ordering::Relaxed);
        is_first
    }

    /// Notes that a request was answered. Returns the outage that ends with it, which is to be
    /// logged.
    pub fn answered(&self) -> Option<Ended> {
        if !self.0.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let (mut state, now) = (self.state(), Instant::now());
        let is_waited_for = state.waiting > 0;
        let current = state.current.as_mut()?;
        let answered = *current.answered.get_or_insert(now);
        if is_waited_for || now - current.last_failure < self.0.quiet {
            return None;
        }
        let ended = Ended { lasted: answered - current.began, failed: current.failed };
        state.current = None;
        self.0.is_on.store(false, Ordering::Relaxed);
        Some(ended)
    }

    /// Begins to wait for the server.
    pub fn wait(&self) -> Waiting {
        self.state().waiting += 1;
        Waiting(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, OutageState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Ends the wait, because the server has answered; else as [`Outage::answered`].
    pub fn answered(self) -> Option<Ended> {
        let outage = self.0.clone();
        drop(self);
        outage.answered()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Ended {
    /// Returns its length in milliseconds.
    pub fn for_ms(&self) -> u64 {
        u64::try_from(self.lasted.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Logs a failure: as a warning if it is the first of its kind in an outage (the first argument, what
/// [`Outage::failed`] returned), else at `debug`. The other arguments are those of
/// `tracing::warn!`.
///
/// [`Outage::failed`]: crate::outage::Outage::failed
#[macro_export]
macro_rules! log_failure {
    ($is_first:expr, $($event:tt)+) => {
        if $is_first {
            ::tracing::warn!($($event)+);
        } else {
            ::tracing::debug!($($event)+);
        }
    };
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const AWAY: &str = "away";

    #[tokio::test(start_paused = true)]
    async fn an_outage_begins_with_the_first_failure_and_ends_when_the_last_that_waits_is_answered()
    {
        let outage = Outage::default();
        assert_eq!(outage.answered(), None, "there is none");
        let (first, second) = (outage.wait(), outage.wait());
        assert_eq!([outage.failed(1, AWAY), outage.failed(1, AWAY)], [true, false]);
        advance(SECOND).await;
        assert_eq!(outage.answered(), None, "two wait");
        assert_eq!(first.answered(), None, "another waits");
        assert!(!outage.failed(1, AWAY));
        advance(SECOND).await;
        assert_eq!(second.answered(), Some(Ended { lasted: 2 * SECOND, failed: 3 }));
        assert_eq!(outage.answered(), None, "it has ended");
        assert!(outage.failed(1, AWAY), "the next one begins");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_gives_up_neither_ends_an_outage_nor_keeps_it_on() {
        let outage = Outage::default();
        let waiting = outage.wait();
        outage.failed(1, AWAY);
        drop(waiting);
        assert!(!outage.failed(1, AWAY), "nothing was answered since");
        assert!(outage.answered().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_some_requests_is_one_outage_until_it_has_refused_none_for_a_time()
     {
        let outage = Outage::of_refused_requests();
        let mut begun = 0;
        for _ in 0..100 {
            begun += usize::from(outage.failed(2, AWAY));
            advance(SECOND).await;
            assert_eq!(outage.answered(), None);
        }
        assert_eq!(begun, 1);
        advance(QUIET).await;
        // The last failure was followed by an answer one second later.
        assert_eq!(outage.answered(), Some(Ended { lasted: 100 * SECOND, failed: 200 }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_of_another_kind_is_told_once_in_the_outage_that_it_is_part_of() {
        let outage = Outage::of_refused_requests();
        let told =
            ["away", "away", "refused", "away", "refused"].map(|kind| outage.failed(1, kind));
        assert_eq!(told, [true, false, true, false, false]);
        advance(QUIET).await;
        assert_eq!(outage.answered().unwrap().failed, 5);
        assert!(outage.failed(1, "refused"), "the next outage begins");
    }
}
