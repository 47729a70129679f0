//! The outage of a server as one event of the log, however many requests fail meanwhile.
//!
//! A server may do some of what it is asked and refuse the rest: a Redis that became a replica
//! answers reads, and in a cluster one master may be away. If each answer ended the outage, each
//! failure after it would be logged as a new one. So an answer ends an outage only if no request
//! that failed is still waiting to be made again ([`Outage::wait`]), and, for a program that refuses
//! what fails in place of waiting, if nothing has failed for [`QUIET`].
//!
//! The checks of [`Health`](crate::health) say that a server is down and when it is up again, with its
//! address. What requests meet meanwhile is logged at `debug`. Only an outage that lasts longer than a
//! check needs ([`UNSEEN`]), and in which a server was reached and did not do its work, is a warning: the
//! checks may not see it. That is one line for each kind of failure, and one when it is over.

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

/// The time after which failures are logged as a warning: the checks of the server would have failed by
/// then, too.
pub const UNSEEN: Duration = Duration::from_secs(5);

/// The kinds of failures that the checks of a server always see: it cannot be reached.
const SEEN_BY_CHECKS: [&str; 3] = ["unreachable", "unavailable", "blocked"];

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
    /// The kinds of failures that were logged; there are few.
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
    /// True if a failure was logged as a warning.
    pub was_said: bool,
}

impl Outage {
    /// For a program that refuses a request when the server fails. The outage counts as over once
    /// nothing has failed for [`QUIET`].
    pub fn of_refused_requests() -> Self {
        Self(Arc::new(Shared { quiet: QUIET, ..Shared::default() }))
    }

    /// Notes that a request failed in a way of this kind, and `count` pieces of work with it. Returns true if
    /// that is to be logged as a warning ([`log_failure`](crate::log_failure)): the outage lasts, the checks
    /// may not see it, and nothing of this kind was logged in it.
    pub fn failed(&self, count: usize, kind: &'static str) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        let current = state.current.get_or_insert_with(|| Current {
            began: now,
            last_failure: now,
            answered: None,
            failed: 0,
            kinds: Vec::new(),
        });
        let lasts = now.saturating_duration_since(current.began) >= UNSEEN;
        let is_news = lasts && !SEEN_BY_CHECKS.contains(&kind) && !current.kinds.contains(&kind);
        if is_news {
            current.kinds.push(kind);
        }
        (current.last_failure, current.answered) = (now, None);
        current.failed = current.failed.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        self.0.is_on.store(true, Ordering::Relaxed);
        is_news
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
        let ended = Ended {
            lasted: answered - current.began,
            failed: current.failed,
            was_said: !current.kinds.is_empty(),
        };
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

/// Logs a failure: as a warning if it is to be said (the first argument, what [`Outage::failed`] returned),
/// else at `debug`. The other arguments are those of
/// `tracing::warn!`.
///
/// [`Outage::failed`]: crate::outage::Outage::failed
#[macro_export]
macro_rules! log_failure {
    ($is_news:expr, $($event:tt)+) => {
        if $is_news {
            ::tracing::warn!($($event)+);
        } else {
            ::tracing::debug!($($event)+);
        }
    };
}

/// Logs the end of an outage ([`Ended`]): at `info` if its beginning was logged as a warning, else at
/// `debug`. The other arguments are those of `tracing::info!`.
#[macro_export]
macro_rules! log_end_of_outage {
    ($ended:expr, $($event:tt)+) => {
        if $ended.was_said {
            ::tracing::info!($($event)+);
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
    const AWAY: &str = "late";

    #[tokio::test(start_paused = true)]
    async fn an_outage_begins_with_the_first_failure_and_ends_when_the_last_that_waits_is_answered()
    {
        let outage = Outage::default();
        assert_eq!(outage.answered(), None, "there is none");
        let (first, second) = (outage.wait(), outage.wait());
        assert_eq!([outage.failed(1, AWAY), outage.failed(1, AWAY)], [false, false]);
        advance(SECOND).await;
        assert_eq!(outage.answered(), None, "two wait");
        assert_eq!(first.answered(), None, "another waits");
        assert!(!outage.failed(1, AWAY));
        advance(SECOND).await;
        let ended = Ended { lasted: 2 * SECOND, failed: 3, was_said: false };
        assert_eq!(second.answered(), Some(ended));
        assert_eq!(outage.answered(), None, "it has ended");
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
        assert_eq!(
            outage.answered(),
            Some(Ended { lasted: 100 * SECOND, failed: 200, was_said: true })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_lasts_and_no_check_sees_is_told_once_for_each_kind() {
        let outage = Outage::of_refused_requests();
        let tell = |kinds: [&'static str; 4]| kinds.map(|kind| outage.failed(1, kind));
        let kinds = ["unreachable", "late", "late", "refused"];
        assert_eq!(tell(kinds), [false; 4], "a check that fails soon says it");
        advance(UNSEEN).await;
        assert_eq!(tell(kinds), [false, true, false, true]);
        advance(QUIET).await;
        let ended = outage.answered().unwrap();
        assert_eq!((ended.failed, ended.was_said), (8, true));
        assert!(!outage.failed(1, "late"), "the next outage begins");
    }
}
