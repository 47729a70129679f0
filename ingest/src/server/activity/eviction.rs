//! Chooses the connections that may be closed for others: a pure reading of their activity.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::Instant;

use super::{ANSWERING, Activity, HEAD, IDLE, NEW};

/// The time after a request for which its connection is kept in any case: the answer may be on its way.
const AFTER_ANSWER: Duration = Duration::from_millis(100);
/// The time from which on a connection counts as idle although its client still reads a long answer.
const WHILE_ANSWERING: Duration = Duration::from_secs(10);
/// The time for which a connection is kept in any case while its client takes nothing of an answer.
const WHILE_UNREAD: Duration = Duration::from_secs(1);
/// The time for which a connection is always kept while a request waits for its body. A connection without a
/// first request may be evicted before others from this age on.
const WHILE_RECEIVING: Duration = Duration::from_secs(1);

/// The reason why a connection may be closed for another one, and the time since it may. The greatest is
/// closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Evictable {
    /// It was only just accepted: its first request may be on the way.
    New(Duration),
    /// Its client takes nothing of an answer.
    Unread(Duration),
    /// All requests in work wait for their bodies: nothing was accepted that could be lost.
    Receiving(Duration),
    /// Nothing is in work.
    Idle(Duration),
}

impl Evictable {
    /// Returns the reason, which is the higher the sooner the connection is closed, and the time.
    pub(crate) const fn rank(self) -> (u8, Duration) {
        match self {
            Self::New(lasts) => (0, lasts),
            Self::Unread(lasts) => (1, lasts),
            Self::Receiving(lasts) => (2, lasts),
            Self::Idle(lasts) => (3, lasts),
        }
    }
}

impl Activity {
    /// Returns why the connection may be closed for another one, if it may.
    pub(crate) fn evictable(&self, now: Instant) -> Option<Evictable> {
        let since = Duration::from_millis(self.since.load(Ordering::Relaxed));
        let lasts = self.age(now).saturating_sub(since);
        // The phase is that of the last change, and another request may have begun since.
        if self.requests.any() {
            let is_receiving = self.requests.are_all_receiving() && lasts >= WHILE_RECEIVING;
            return is_receiving.then_some(Evictable::Receiving(lasts));
        }
        let is_idle = match self.phase.load(Ordering::Relaxed) {
            NEW | HEAD if lasts < WHILE_RECEIVING => return Some(Evictable::New(lasts)),
            NEW | HEAD => true,
            IDLE => lasts >= AFTER_ANSWER,
            ANSWERING if lasts < WHILE_ANSWERING => {
                let took = Duration::from_millis(self.took.load(Ordering::Relaxed));
                let unread = lasts.min(self.age(now).saturating_sub(took));
                return (unread >= WHILE_UNREAD).then_some(Evictable::Unread(unread));
            }
            ANSWERING => true,
            _ => false,
        };
        is_idle.then_some(Evictable::Idle(lasts))
    }

    /// Takes no more requests, because the connection is closed for another one. Returns false if a request
    /// is in work that may have been accepted, which must be answered.
    pub(crate) fn evict(&self) -> bool {
        self.requests.close()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_connection_may_be_closed_for_another_while_no_answer_is_to_come_over_it() {
        let activity = Arc::new(Activity::new(Instant::now()));
        let evictable = || activity.evictable(Instant::now());
        tokio::time::advance(SECOND).await;
        assert_eq!(evictable(), Some(Evictable::Idle(SECOND)));
        activity.received();
        assert_eq!(evictable(), Some(Evictable::Idle(SECOND)), "a part of a head does not keep it");
        let request = activity.begin_request().unwrap();
        tokio::time::advance(100 * SECOND).await;
        assert_eq!(evictable(), None, "a request is in work");
        let answer = request.answer();
        for _ in 0..9 {
            assert_eq!(evictable(), None, "the answer is being read");
            tokio::time::advance(SECOND).await;
            answer.took_a_part();
        }
        tokio::time::advance(SECOND).await;
        let slow = Some(Evictable::Idle(10 * SECOND));
        assert_eq!(evictable(), slow, "the client takes its time");
        drop(answer);
        drop(activity.begin_request().unwrap());
        assert_eq!(evictable(), None, "the answer is on its way");
        tokio::time::advance(AFTER_ANSWER).await;
        assert_eq!(evictable(), Some(Evictable::Idle(AFTER_ANSWER)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_client_takes_nothing_of_an_answer_is_closed_before_new_ones() {
        let activity = Arc::new(Activity::new(Instant::now()));
        let evictable = || activity.evictable(Instant::now());
        let request = activity.begin_request().unwrap();
        tokio::time::advance(5 * SECOND).await;
        let answer = request.answer();
        tokio::time::advance(SECOND / 2).await;
        answer.took_a_part();
        tokio::time::advance(SECOND / 2).await;
        assert_eq!(evictable(), None, "it took a part half a second ago");
        tokio::time::advance(SECOND / 2).await;
        assert_eq!(evictable(), Some(Evictable::Unread(SECOND)));
        assert!(evictable() > Activity::new(Instant::now()).evictable(Instant::now()));
        assert!(evictable() < Some(Evictable::Receiving(Duration::ZERO)));
        assert!(activity.evict());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_may_be_closed_after_idle_ones_while_all_its_requests_wait_for_bodies() {
        let activity = Arc::new(Activity::new(Instant::now()));
        let evictable = || activity.evictable(Instant::now());
        let (one, other) = (activity.begin_request().unwrap(), activity.begin_request().unwrap());
        tokio::time::advance(100 * SECOND).await;
        one.begin_receiving();
        tokio::time::advance(SECOND).await;
        assert_eq!(evictable(), None, "the other has its body");
        other.begin_receiving();
        assert_eq!(evictable(), None, "it has only just begun to wait");
        tokio::time::advance(SECOND).await;
        assert_eq!(evictable(), Some(Evictable::Receiving(SECOND)));
        assert!(evictable() < Some(Evictable::Idle(Duration::ZERO)));
        assert!(evictable() > Activity::new(Instant::now()).evictable(Instant::now()));
        assert!(one.end_receiving());
        assert_eq!(evictable(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_request_that_begins_and_the_closing_of_its_connection_one_sees_the_other() {
        let activity = Arc::new(Activity::new(Instant::now()));
        tokio::time::advance(SECOND).await;
        assert!(activity.evictable(Instant::now()).is_some());
        // The request begins after the connection was chosen, and before it is closed.
        let request = activity.begin_request().unwrap();
        assert!(!activity.evict(), "the request is answered");
        drop(request);
        assert!(activity.evict());
        assert!(activity.begin_request().is_none(), "and this one is told that it was not taken");
    }
}
