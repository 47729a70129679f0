//! Bounds the frames that make h2 visit every open stream of a connection.

use std::time::Duration;

use tokio::time::Instant;

/// The most of them that may come together. Clients send one SETTINGS and its acknowledgement when they begin, a few
/// more as they learn how fast the network is, and two GOAWAY when they end.
const BURST: u32 = 20;
/// The time until one more may come.
const EACH: Duration = Duration::from_secs(1);

/// The frames that one connection may still send.
#[derive(Debug)]
pub(super) struct Visits {
    /// The time at which it may send a whole burst again.
    full_at: Instant,
}

impl Visits {
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Counts so many frames. Returns false if they are more than may come.
    pub(super) fn take(&mut self, frames: u32, now: Instant) -> bool {
        self.full_at = self.full_at.max(now) + EACH * frames.min(2 * BURST);
        self.full_at <= now + EACH * BURST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_a_burst_and_one_more_each_second() {
        let mut now = Instant::now();
        let mut visits = Visits::new(now);
        assert!((0..BURST).all(|_| visits.take(1, now)));
        for _ in 0..100 {
            now += EACH;
            assert!(visits.take(1, now));
        }
        assert!(!visits.take(1, now));
        assert!(!Visits::new(now).take(u32::MAX, now));
    }
}
