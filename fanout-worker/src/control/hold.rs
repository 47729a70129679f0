//! How long a worker may keep a queue message.
//!
//! There is one bound for a message while the index is away: each job of an envelope and each
//! request to the index counts against it. Otherwise an index that is away would be waited for once
//! for each of them in turn, until RabbitMQ takes the message back (half an hour after it handed it
//! out) and gives it to another worker beside this one. A wait for the queue has no such bound:
//! there is nowhere else to hand the message to.

use std::{fmt, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A queue message in work.
#[derive(Clone, Copy)]
pub(crate) struct Hold<'a> {
    is_held: &'a (dyn Fn() -> bool + Sync),
    until: Instant,
    stopping: &'a CancellationToken,
}

impl<'a> Hold<'a> {
    /// Begins to keep a message, for so long at most.
    pub(crate) fn new(
        is_held: &'a (dyn Fn() -> bool + Sync),
        longest: Duration,
        stopping: &'a CancellationToken,
    ) -> Self {
        Self { is_held, until: Instant::now() + longest, stopping }
    }

    /// Whether the message still belongs to this worker, as far as that is known here.
    pub(crate) fn is_held(&self) -> bool {
        (self.is_held)()
    }

    /// Whether it was kept for as long as it may.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Whether the worker stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Is cancelled when the worker stops.
    pub(crate) fn stopping(&self) -> &'a CancellationToken {
        self.stopping
    }
}

impl fmt::Debug for Hold<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("until", &self.until).finish_non_exhaustive()
    }
}
