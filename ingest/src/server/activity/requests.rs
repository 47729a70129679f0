//! Counts the requests in work on a connection. One atomic number holds the count and the mark that
//! the connection makes room for another one. If both change in the same instant, one sees the
//! other.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bits that count the requests in work.
const IN_WORK: u64 = (1 << 31) - 1;
/// One request in work.
const ONE: u64 = 1;
/// A request in work that waits for its body. The bits up to [`CLOSED`] count these.
const ONE_RECEIVING: u64 = 1 << 31;
/// Set for good once the connection takes no more requests.
const CLOSED: u64 = 1 << 62;

/// The requests in work, and whether more are taken.
#[derive(Debug, Default)]
pub(super) struct Requests(AtomicU64);

impl Requests {
    /// Counts a request. Returns false if the connection takes no more.
    pub(super) fn begin(&self) -> bool {
        let is_open = self.0.fetch_add(ONE, Ordering::Relaxed) & CLOSED == 0;
        if !is_open {
            self.end();
        }
        is_open
    }

    /// Uncounts a request that is answered. Returns true if it was the last.
    pub(super) fn end(&self) -> bool {
        self.0.fetch_sub(ONE, Ordering::Relaxed) & IN_WORK == ONE
    }

    /// Notes that a request waits for its body.
    pub(super) fn begin_receiving(&self) {
        self.0.fetch_add(ONE_RECEIVING, Ordering::Relaxed);
    }

    /// Notes that a request has its body. Returns false if the connection takes no more requests.
    pub(super) fn end_receiving(&self) -> bool {
        self.0.fetch_sub(ONE_RECEIVING, Ordering::Relaxed) & CLOSED == 0
    }

    /// Returns true if a request is in work.
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) & IN_WORK > 0
    }

    /// Returns true if all requests, if there are any, wait for their bodies.
    pub(super) fn are_all_receiving(&self) -> bool {
        all_receiving(self.0.load(Ordering::Relaxed))
    }

    /// Takes no more requests, unless one is in work that has its body. Returns true if that succeeded.
    pub(super) fn close(&self) -> bool {
        let closed = |requests| all_receiving(requests).then_some(requests | CLOSED);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, closed).is_ok()
    }
}

fn all_receiving(requests: u64) -> bool {
    let requests = requests & !CLOSED;
    requests & IN_WORK == requests / ONE_RECEIVING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_closed_only_while_no_request_has_its_body_and_takes_none_from_then_on() {
        let requests = Requests::default();
        assert!(requests.begin());
        assert!(!requests.close(), "a request is in work");
        requests.begin_receiving();
        assert!(requests.begin());
        assert!(!requests.close(), "one of two has its body");
        assert!(!requests.end());
        assert!(requests.end_receiving());
        assert!(!requests.close(), "it has its body now");
        assert!(requests.end());

        requests.begin();
        requests.begin_receiving();
        assert!(requests.close());
        assert!(!requests.end_receiving(), "its body comes too late");
        assert!(requests.end());
        assert!(!requests.begin() && requests.are_all_receiving());
    }
}
