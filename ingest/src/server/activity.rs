//! What a connection is doing, and how long it may go on doing it.
//!
//! One timer a connection watches this, instead of one a request: a request only notes what
//! it does, and the timer looks when the earliest possible deadline has come. While a request
//! is in work there is no deadline here, because everything that a call waits for (the body, the
//! index, the queue) has its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::settings::HttpSettings;

/// Nothing was received since the accept.
const NEW: u8 = 0;
/// A part of a head was received.
const HEAD: u8 = 1;
/// Requests are in work.
const BUSY: u8 = 2;
/// All requests were answered, and nothing was received since.
const IDLE: u8 = 3;

/// The activity of one connection, shared by its parts.
#[derive(Debug)]
pub(super) struct Activity {
    accepted: Instant,
    phase: AtomicU8,
    /// When the phase began, in milliseconds since the accept.
    since: AtomicU64,
    in_work: AtomicU32,
    /// Whether this is HTTP/2: what is received may be no head.
    multiplexed: AtomicBool,
}

/// What the watch finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// Look again then.
    Until(Instant),
    /// A head is overdue: its sender waits for an answer.
    HeadOverdue,
    /// Nobody waits for anything.
    IdleTooLong,
}

/// A request in work, until it is dropped.
#[derive(Debug)]
pub(super) struct InWork(Arc<Activity>);

impl Activity {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            accepted: now,
            phase: AtomicU8::new(NEW),
            since: AtomicU64::new(0),
            in_work: AtomicU32::new(0),
            multiplexed: AtomicBool::new(false),
        }
    }

    fn enter(&self, phase: u8, now: Instant) {
        let since = self.age(now).as_millis();
        self.since.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Bytes were received.
    pub(super) fn received(&self) {
        if self.multiplexed.load(Ordering::Relaxed) {
            return;
        }
        match self.phase.load(Ordering::Relaxed) {
            // The first head's time runs from the accept.
            NEW => self.phase.store(HEAD, Ordering::Relaxed),
            IDLE => self.enter(HEAD, Instant::now()),
            _ => {}
        }
    }

    /// HTTP/2 was recognised.
    pub(super) fn multiplex(&self) {
        self.multiplexed.store(true, Ordering::Relaxed);
        self.enter(IDLE, Instant::now());
    }

    /// A request begins.
    pub(super) fn begin(self: &Arc<Self>) -> InWork {
        self.in_work.fetch_add(1, Ordering::Relaxed);
        self.phase.store(BUSY, Ordering::Relaxed);
        InWork(Arc::clone(self))
    }

    /// How long the connection is open.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.accepted)
    }

    /// What the connection is doing, for the log.
    pub(super) fn describe(&self) -> &'static str {
        match self.phase.load(Ordering::Relaxed) {
            NEW => "waiting for a first request",
            HEAD => "receiving a request's head",
            BUSY => "answering requests",
            _ => "idle",
        }
    }

    /// Whether somebody's time is up.
    pub(super) fn watch(&self, now: Instant, http: &HttpSettings) -> Watch {
        let since = self.accepted + Duration::from_millis(self.since.load(Ordering::Relaxed));
        let (deadline, overdue) = match self.phase.load(Ordering::Relaxed) {
            NEW => (since + http.header_timeout, Watch::IdleTooLong),
            HEAD => (since + http.header_timeout, Watch::HeadOverdue),
            IDLE => (since + http.idle_timeout, Watch::IdleTooLong),
            // No phase after this one ends before the shorter of the two.
            _ => return Watch::Until(now + http.header_timeout.min(http.idle_timeout)),
        };
        // A head may begin as soon as the connection lies idle, and has the shorter time.
        if now >= deadline {
            overdue
        } else {
            Watch::Until(deadline.min(now + http.header_timeout))
        }
    }
}

impl Drop for InWork {
    fn drop(&mut self) {
        if self.0.in_work.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.enter(IDLE, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn http() -> HttpSettings {
        HttpSettings {
            max_connections: 1,
            header_timeout: 10 * SECOND,
            body_timeout: SECOND,
            idle_timeout: 75 * SECOND,
            max_header: 1,
            max_body: 1,
            max_batch_body: 1,
            max_batch_lines: 1,
            h2_streams: 1,
            max_buffered: 1,
        }
    }

    async fn after(seconds: u32, activity: &Activity) -> Watch {
        tokio::time::advance(seconds * SECOND).await;
        activity.watch(Instant::now(), &http())
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte_and_the_first_head_from_the_accept() {
        let activity = Arc::new(Activity::new(Instant::now()));
        assert!(matches!(after(9, &activity).await, Watch::Until(_)));
        activity.received();
        assert_eq!(after(1, &activity).await, Watch::HeadOverdue);

        drop(activity.begin());
        assert!(matches!(after(60, &activity).await, Watch::Until(_)));
        activity.received();
        assert!(matches!(after(9, &activity).await, Watch::Until(_)));
        activity.received();
        assert_eq!(after(1, &activity).await, Watch::HeadOverdue, "more bytes give no more time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_work_has_no_deadline_here_and_an_idle_connection_has() {
        let activity = Arc::new(Activity::new(Instant::now()));
        activity.received();
        let (one, other) = (activity.begin(), activity.begin());
        drop(one);
        assert!(matches!(after(1000, &activity).await, Watch::Until(_)));
        drop(other);
        assert!(matches!(after(74, &activity).await, Watch::Until(_)));
        assert_eq!(after(1, &activity).await, Watch::IdleTooLong);
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_idle_http2_connection_receives_does_not_keep_it() {
        let activity = Activity::new(Instant::now());
        activity.multiplex();
        assert!(matches!(after(74, &activity).await, Watch::Until(_)));
        activity.received();
        assert_eq!(after(1, &activity).await, Watch::IdleTooLong);
    }
}
