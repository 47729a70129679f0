//! The activity of a connection, and the time limit that applies meanwhile.
//!
//! A request only notes here what it does. One timer for each connection
//! ([`Interruptions`](super::timeouts::Interruptions)) checks the notes when the earliest possible
//! deadline has come, so no request needs a timer of its own. While requests are in work no limit
//! of this file applies, because everything that a handler waits for (the body, the index, the
//! queue) has its own.
//!
//! - `requests`: counts the requests in work, and excludes that a connection is closed for another one
//!   while a request begins
//! - `eviction`: which connections may be closed for others

mod eviction;
mod requests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

pub(super) use self::eviction::Evictable;
use self::requests::Requests;
use crate::settings::HttpSettings;

/// Nothing was received since the accept.
const NEW: u8 = 0;
/// A part of a head was received.
const HEAD: u8 = 1;
/// Requests are in work.
const BUSY: u8 = 2;
/// All requests were answered, and nothing was received since.
const IDLE: u8 = 3;
/// The last answer is being written.
const ANSWERING: u8 = 4;

/// The activity of one connection. The connection's stages and its timer share it.
#[derive(Debug)]
pub(super) struct Activity {
    accepted: Instant,
    phase: AtomicU8,
    /// The beginning of the phase, in milliseconds since the accept. While requests are in work: when the
    /// last of them began to wait for its body.
    since: AtomicU64,
    /// The time at which the client last took a part of an answer that is not whole, in milliseconds since
    /// the accept.
    took: AtomicU64,
    requests: Requests,
    /// This is HTTP/2, in which bytes that arrive need not be a request's head.
    multiplexed: AtomicBool,
}

/// A time limit that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timeout {
    /// A head was begun and did not arrive in time. The client waits for an answer.
    Head,
    /// The client sent nothing for too long. It waits for nothing.
    Idle,
}

/// Counts a request as in work until it is dropped.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Activity>);

/// Notes that an answer is being written, over a connection that has one request at a time.
#[derive(Debug)]
pub(super) struct AnswerGuard(Arc<Activity>);

impl Activity {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            accepted: now,
            phase: AtomicU8::new(NEW),
            since: AtomicU64::new(0),
            took: AtomicU64::new(0),
            requests: Requests::default(),
            multiplexed: AtomicBool::new(false),
        }
    }

    fn enter(&self, phase: u8, now: Instant) {
        self.note_time(now);
        self.phase.store(phase, Ordering::Relaxed);
    }

    fn note_time(&self, now: Instant) {
        self.since.store(self.age_in_millis(now), Ordering::Relaxed);
    }

    fn age_in_millis(&self, now: Instant) -> u64 {
        u64::try_from(self.age(now).as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes that bytes were received.
    pub(super) fn received(&self) {
        if self.multiplexed.load(Ordering::Relaxed) {
            return;
        }
        match self.phase.load(Ordering::Relaxed) {
            // The time limit of the first head runs from the accept.
            NEW => self.phase.store(HEAD, Ordering::Relaxed),
            IDLE => self.enter(HEAD, Instant::now()),
            _ => {}
        }
    }

    /// Notes that the connection is HTTP/2. The time limit of its first head still runs.
    pub(super) fn multiplex(&self) {
        self.multiplexed.store(true, Ordering::Relaxed);
    }

    /// Returns true if a request is in work.
    pub(super) fn is_in_work(&self) -> bool {
        self.requests.any()
    }

    /// Notes that a request begins. Returns `None` if the connection is being closed for another one.
    pub(super) fn begin_request(self: &Arc<Self>) -> Option<RequestGuard> {
        if !self.requests.begin() {
            return None;
        }
        self.phase.store(BUSY, Ordering::Relaxed);
        Some(RequestGuard(Arc::clone(self)))
    }

    /// Returns the time for which the connection has been open.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.accepted)
    }

    /// Describes the activity for the log.
    pub(super) fn describe(&self) -> &'static str {
        match self.phase.load(Ordering::Relaxed) {
            NEW => "waiting for a first request",
            HEAD => "receiving a request's head",
            BUSY => "answering requests",
            ANSWERING => "writing an answer",
            _ => "idle",
        }
    }

    /// Returns the time of the next check.
    ///
    /// # Errors
    /// The time limit that has passed.
    pub(super) fn check(&self, now: Instant, http: &HttpSettings) -> Result<Instant, Timeout> {
        let since = self.accepted + Duration::from_millis(self.since.load(Ordering::Relaxed));
        let (deadline, timeout) = match self.phase.load(Ordering::Relaxed) {
            NEW => (since + http.header_timeout, Timeout::Idle),
            HEAD => (since + http.header_timeout, Timeout::Head),
            _ if self.requests.any() => {
                // Any phase after this one lasts at least for the shorter of the two limits.
                return Ok(now + http.header_timeout.min(http.idle_timeout));
            }
            IDLE | ANSWERING => (since + http.idle_timeout, Timeout::Idle),
            _ => return Ok(now + http.header_timeout.min(http.idle_timeout)),
        };
        if now >= deadline {
            Err(timeout)
        } else {
            // An idle connection may receive the beginning of a head at any moment, and the limit
            // of a head is usually the shorter one.
            Ok(deadline.min(now + http.header_timeout))
        }
    }
}

impl RequestGuard {
    /// Notes that the request waits for its body.
    pub(super) fn begin_receiving(&self) {
        self.0.note_time(Instant::now());
        self.0.requests.begin_receiving();
    }

    /// Notes that it waits no longer. Returns false if the connection was closed for another one meanwhile,
    /// and the request must not go on.
    pub(super) fn end_receiving(&self) -> bool {
        self.0.requests.end_receiving()
    }

    /// Notes that the answer is being written, until it is dropped.
    pub(super) fn answer(self) -> AnswerGuard {
        let activity = Arc::clone(&self.0);
        drop(self);
        activity.phase.store(ANSWERING, Ordering::Relaxed);
        AnswerGuard(activity)
    }
}

impl AnswerGuard {
    /// Notes that the client took a part of the answer, and more is to come.
    pub(super) fn took_a_part(&self) {
        self.0.took.store(self.0.age_in_millis(Instant::now()), Ordering::Relaxed);
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.0.phase.store(IDLE, Ordering::Relaxed);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if self.0.requests.end() {
            self.0.enter(IDLE, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use push_boot::proxy_protocol::TrustedProxies;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn http() -> HttpSettings {
        HttpSettings {
            max_connections: 1,
            max_connections_is_given: false,
            max_connections_per_address: None,
            header_timeout: 10 * SECOND,
            body_timeout: SECOND,
            idle_timeout: 75 * SECOND,
            max_header: 1,
            max_body: 1,
            max_batch_body: 1,
            max_batch_lines: 1,
            h2_streams: 1,
            max_buffered: 1,
            max_buffered_per_app: 1,
            min_body_rate: 0,
            trusted_proxies: TrustedProxies::default(),
        }
    }

    async fn after(seconds: u32, activity: &Activity) -> Result<Instant, Timeout> {
        tokio::time::advance(seconds * SECOND).await;
        activity.check(Instant::now(), &http())
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte_and_the_first_head_from_the_accept() {
        let activity = Arc::new(Activity::new(Instant::now()));
        assert!(after(9, &activity).await.is_ok());
        activity.received();
        assert_eq!(after(1, &activity).await, Err(Timeout::Head));

        drop(activity.begin_request().unwrap());
        assert!(after(60, &activity).await.is_ok());
        activity.received();
        assert!(after(9, &activity).await.is_ok());
        activity.received();
        assert_eq!(after(1, &activity).await, Err(Timeout::Head), "more bytes give no more time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_work_has_no_deadline_here_and_an_idle_connection_has() {
        let activity = Arc::new(Activity::new(Instant::now()));
        activity.received();
        let (one, other) = (activity.begin_request().unwrap(), activity.begin_request().unwrap());
        drop(one);
        assert!(after(1000, &activity).await.is_ok());
        drop(other);
        assert!(after(74, &activity).await.is_ok());
        assert_eq!(after(1, &activity).await, Err(Timeout::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_request_in_work_is_not_idle_whatever_was_noted_last() {
        let activity = Arc::new(Activity::new(Instant::now()));
        activity.multiplex();
        let request = activity.begin_request().unwrap();
        // The end of another one, whose stream is a task of its own, is noted late.
        activity.enter(IDLE, Instant::now());
        assert!(after(100, &activity).await.is_ok());
        assert_eq!(activity.evictable(Instant::now()), None);
        drop(request);
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_idle_http2_connection_receives_does_not_keep_it() {
        let activity = Arc::new(Activity::new(Instant::now()));
        activity.multiplex();
        drop(activity.begin_request().unwrap());
        assert!(after(74, &activity).await.is_ok());
        activity.received();
        assert_eq!(after(1, &activity).await, Err(Timeout::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn an_http2_connection_without_a_first_request_has_the_time_of_a_head() {
        let activity = Activity::new(Instant::now());
        activity.received();
        activity.multiplex();
        assert!(after(9, &activity).await.is_ok());
        activity.received();
        assert_eq!(after(1, &activity).await, Err(Timeout::Head));
    }
}
