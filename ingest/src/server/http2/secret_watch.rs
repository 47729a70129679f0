//! Ends connections over which no right secret comes.
//!
//! h2 keeps the memory of the most streams that a connection ever had together, about 330 KB for 256 of
//! them, until the connection ends. A client without a secret would hold that over each idle connection
//! for the few bytes of one burst, so its connections end after a few requests.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio_util::sync::CancellationToken;

/// The most requests of a connection before one of them has a right secret.
const REQUESTS: u32 = 32;

/// The state of the client of one connection.
#[derive(Debug)]
pub(super) struct SecretWatch {
    /// Set once a right secret came or the connection was told to end, whichever is first.
    is_decided: AtomicBool,
    requests: AtomicU32,
    /// Ends the connection as if the service stopped: requests in work are answered.
    end: CancellationToken,
}

/// The step after a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing.
    Away,
    /// Check its secret, because it probably has a right one.
    AtSecret,
    /// Check its secret, and end the connection without a right one.
    AtLast,
}

impl SecretWatch {
    pub(super) fn new(end: CancellationToken) -> Self {
        Self { is_decided: AtomicBool::new(false), requests: AtomicU32::new(0), end }
    }

    pub(super) fn count(&self, is_success: bool) -> Look {
        if self.is_decided.load(Ordering::Relaxed) {
            return Look::Away;
        }
        // The number of streams of a connection is below 2^31.
        if self.requests.fetch_add(1, Ordering::Relaxed) + 1 >= REQUESTS {
            Look::AtLast
        } else if is_success {
            Look::AtSecret
        } else {
            Look::Away
        }
    }

    /// Notes that a request had a right secret.
    pub(super) fn note_secret(&self) {
        self.is_decided.store(true, Ordering::Relaxed);
    }

    /// Ends the connection when its requests are answered. Returns false if it ends already, or a right
    /// secret came meanwhile.
    pub(super) fn end(&self) -> bool {
        let is_first = !self.is_decided.swap(true, Ordering::Relaxed);
        if is_first {
            self.end.cancel();
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_a_success_is_checked_and_that_of_the_last_request_without_one() {
        let secret_watch = || SecretWatch::new(CancellationToken::new());
        let (one, other) = (secret_watch(), secret_watch());
        for _ in 1..REQUESTS {
            assert_eq!(one.count(false), Look::Away);
        }
        assert_eq!(one.count(false), Look::AtLast);
        assert!(one.end() && !one.end());
        assert_eq!(one.count(false), Look::Away, "it ends already");
        assert_eq!(other.count(true), Look::AtSecret);
        other.note_secret();
        assert!((0..2 * REQUESTS).all(|_| other.count(false) == Look::Away));
    }
}
