//! What a connection is doing, and how long it may go on doing it.
//!
//! One timer a connection watches this, instead of one a request: a request only notes what
//! it does, and the timer looks when the earliest possible deadline has come. While a request
//! is in work there is no deadline here, because everything that a call waits for (the body, the
//! index, the queue) has its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
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
        }
    }

    fn enter(&self, phase: u8, now: Instant) {
        let since = now.saturating_duration_since(self.accepted).as_millis();
        self.since.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Bytes of HTTP/1 were received.
    pub(super) fn received(&self) {
        match self.phase.load(Ordering::Relaxed) {
            // The first head's time runs from the accept.
            NEW => self.phase.store(HEAD, Ordering::Relaxed),
            IDLE => self.enter(HEAD, Instant::now()),
            _ => {}
        }
    }

    /// HTTP/2 was recognised: whatever is received now may be no head.
    pub(super) fn multiplexed(&self) {
        self.enter(IDLE, Instant::now());
    }

    /// A request begins.
    pub(super) fn begin(self: &Arc<Self>) -> InWork {
        self.in_work.fetch_add(1, Ordering::Relaxed);
        self.phase.store(BUSY, Ordering::Relaxed);
        InWork(Arc::clone(self))
    }

    /// Whether a head was begun and not answered.
    pub(super) fn owes_an_answer(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == HEAD
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
