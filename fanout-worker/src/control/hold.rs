//! How long a worker may hold a queue message.
//!
//! A message has one deadline for all that is asked of the index for it: for each job of its
//! envelope and for each request. With a deadline for each request, an unavailable index would be
//! waited for once per request, until RabbitMQ takes the message back (30 minutes after it
//! delivered it) and delivers it to another worker beside this one. Waiting for the queue has no
//! deadline, because without the queue the message cannot be handed on.

use std::{fmt, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A queue message in work.
#[derive(Clone, Copy)]
pub(crate) struct Hold<'a> {
    is_ours: &'a (dyn Fn() -> bool + Sync),
    deadline: Instant,
    stopping: &'a CancellationToken,
}

impl<'a> Hold<'a> {
    /// Begins to hold a message, for `longest` at most.
    pub(crate) fn new(
        is_ours: &'a (dyn Fn() -> bool + Sync),
        longest: Duration,
        stopping: &'a CancellationToken,
    ) -> Self {
        Self { is_ours, deadline: Instant::now() + longest, stopping }
    }

    /// Whether the message still belongs to this worker: its consumer has not lost the connection.
    pub(crate) fn is_ours(&self) -> bool {
        (self.is_ours)()
    }

    /// Whether the message was held for as long as it may be.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Whether the worker stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Cancelled when the worker stops.
    pub(crate) fn stopping(&self) -> &'a CancellationToken {
        self.stopping
    }
}

impl fmt::Debug for Hold<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
