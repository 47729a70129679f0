//! When a connection is asked for a sign of life, given up, or closed because it is idle. Pure.
//!
//! A network may forget a connection without a word, and requests on it would all wait for their
//! deadlines. So a silent connection is asked with a ping. Servers take frequent pings for an
//! attack and end the connection, so the pauses between pings grow as long as nothing else is read.

use std::time::Duration;

use tokio::time::Instant;

/// The silence after which a ping is sent while requests wait for answers.
const BUSY_PAUSE: Duration = Duration::from_secs(5);

/// The longest silence without a ping while requests wait.
const BUSY_PAUSE_MOST: Duration = Duration::from_secs(60);

/// The silence after which a ping is sent while no request waits. Address translators forget a
/// connection after some minutes.
const IDLE_PAUSE: Duration = Duration::from_secs(60);

/// The longest silence without a ping while no request waits.
const IDLE_PAUSE_MOST: Duration = Duration::from_secs(300);

/// The time in which a ping must be answered.
pub(crate) const PONG_WAIT: Duration = Duration::from_secs(5);

/// The time without a request after which a connection is closed. Apple asks senders to keep
/// connections open between notifications.
pub(crate) const IDLE_CLOSE: Duration = Duration::from_secs(900);

/// The time in which a connection that gets no more requests, and has none, must have said goodbye.
const LINGER: Duration = Duration::from_secs(5);

/// What is known of a connection's use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// The requests that wait for an answer.
    pub(crate) in_use: usize,
    /// The time since which there are any, or none.
    pub(crate) since: Instant,
    /// The pool gives it no more requests.
    pub(crate) retired: bool,
}

/// What is to be done with a connection now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing for this time.
    Wait(Duration),
    /// A ping is to be sent.
    Ping,
    /// It does not answer: it is to be dropped.
    Dead,
    /// It was not used for long: it is to be closed.
    Idle,
}

/// The signs of life of one connection.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// The bytes read so far.
    read: u64,
    heard: Instant,
    /// The pings in a row beside whose answers nothing was read.
    pings: u32,
    /// The time of a ping that is not answered.
    asked: Option<Instant>,
}

impl Liveness {
    pub(crate) fn new(now: Instant, read: u64) -> Self {
        Self { read, heard: now, pings: 0, asked: None }
    }

    /// Looks at the connection, which has read so many bytes since its beginning.
    pub(crate) fn look(&mut self, now: Instant, read: u64, usage: Usage) -> Look {
        if read != self.read {
            *self = Self::new(now, read);
        }
        let busy = usage.in_use > 0;
        let idle_for = now.duration_since(usage.since);
        let idle_most = if usage.retired { LINGER } else { IDLE_CLOSE };
        if !busy && idle_for >= idle_most {
            return Look::Idle;
        }
        let (deadline, due) = match self.asked {
            Some(asked) => (asked + PONG_WAIT, Look::Dead),
            // A request after a long silence gets its time to be answered.
            None if busy => (self.heard.max(usage.since) + self.pause(true), Look::Ping),
            None => (self.heard + self.pause(false), Look::Ping),
        };
        if now < deadline {
            let idle_left = idle_most.saturating_sub(idle_for);
            let left = deadline - now;
            return Look::Wait(if busy { left } else { left.min(idle_left) });
        }
        if due == Look::Ping {
            self.asked = Some(now);
            self.pings = self.pings.saturating_add(1);
        }
        due
    }

    /// Notes the answer to a ping, with which so many bytes were read.
    pub(crate) fn answered(&mut self, now: Instant, read: u64) {
        self.read = read;
        self.heard = now;
        self.asked = None;
    }

    fn pause(&self, busy: bool) -> Duration {
        let (first, most) =
            if busy { (BUSY_PAUSE, BUSY_PAUSE_MOST) } else { (IDLE_PAUSE, IDLE_PAUSE_MOST) };
        first.saturating_mul(1 << self.pings.min(16)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows a connection that answers pings only, and gives the pauses between them.
    fn pauses(usage: impl Fn(Instant) -> Usage, span: Duration) -> Vec<u64> {
        let begin = Instant::now();
        let (mut now, mut last, mut read) = (begin, begin, 0);
        let mut liveness = Liveness::new(begin, 0);
        let mut pauses = Vec::new();
        while now < begin + span {
            match liveness.look(now, read, usage(begin)) {
                Look::Wait(wait) => now += wait,
                Look::Ping => {
                    pauses.push((now - last).as_secs());
                    last = now;
                    read += 17;
                    liveness.answered(now, read);
                }
                Look::Dead | Look::Idle => break,
            }
        }
        pauses
    }

    fn usage(in_use: usize, since: Instant) -> Usage {
        Usage { in_use, since, retired: false }
    }

    #[test]
    fn pauses_between_pings_grow_while_nothing_but_pongs_is_read() {
        let busy = pauses(|begin| usage(1, begin), Duration::from_secs(200));
        assert_eq!(busy, [5, 10, 20, 40, 60, 60]);
        let idle = pauses(|begin| usage(0, begin), Duration::from_secs(2000));
        assert_eq!(idle, [60, 120, 240, 300]);
    }

    #[test]
    fn an_unanswered_ping_is_the_end_of_a_connection() {
        let now = Instant::now();
        let mut liveness = Liveness::new(now, 10);
        let at = now + BUSY_PAUSE;
        assert_eq!(liveness.look(at, 10, usage(1, now)), Look::Ping);
        assert_eq!(liveness.look(at, 10, usage(1, now)), Look::Wait(PONG_WAIT));
        assert_eq!(liveness.look(at + PONG_WAIT, 10, usage(1, now)), Look::Dead);
    }

    #[test]
    fn any_byte_is_a_sign_of_life() {
        let now = Instant::now();
        let mut liveness = Liveness::new(now, 10);
        let at = now + BUSY_PAUSE;
        assert_eq!(liveness.look(at, 10, usage(1, now)), Look::Ping);
        assert_eq!(liveness.look(at + PONG_WAIT, 11, usage(1, now)), Look::Wait(BUSY_PAUSE));
    }

    #[test]
    fn a_request_after_a_long_silence_is_not_joined_by_a_ping() {
        let now = Instant::now();
        let mut liveness = Liveness::new(now, 10);
        let at = now + Duration::from_secs(50);
        assert_eq!(liveness.look(at, 10, usage(1, at)), Look::Wait(BUSY_PAUSE));
    }

    #[test]
    fn a_connection_without_requests_is_closed_in_the_end() {
        let now = Instant::now();
        let mut liveness = Liveness::new(now, 10);
        assert_eq!(liveness.look(now + IDLE_CLOSE, 10, usage(0, now)), Look::Idle);
        let retired = Usage { retired: true, ..usage(0, now) };
        assert_eq!(liveness.look(now, 10, retired), Look::Wait(LINGER));
        assert_eq!(liveness.look(now + LINGER, 10, retired), Look::Idle);
    }
}
