//! A limit of acknowledgements a second, over all connections.
//!
//! A connection reserves the time of its next acknowledgement and then waits for it, so that
//! connections take turns, and none of them starves.

use std::time::Duration;

use tokio::time::Instant;

/// By how much late acknowledgements may catch up with the even rate, because timers are inexact.
const CATCH_UP: Duration = Duration::from_millis(10);

/// When the next acknowledgement may be sent.
#[derive(Debug)]
pub(super) struct Pace {
    per_second: u32,
    next: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { per_second: 0, next: Instant::now() }
    }

    /// Reserves the time of one acknowledgement.
    pub(super) fn reserve(&mut self, per_second: u32, now: Instant) -> Instant {
        if self.per_second != per_second {
            *self = Self { per_second, next: now };
        }
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        let reserved = self.next.max(earliest);
        self.next = reserved + Duration::from_secs(1) / per_second.max(1);
        reserved
    }
}
