//! Limits how long a worker holds a queue message.
//!
//! All requests to the index on behalf of one message share one deadline, for all jobs of its
//! envelope. With a deadline for each request, an unavailable index would be waited for once per
//! request, until RabbitMQ takes the message back (30 minutes after delivery) and gives it to a
//! second worker while the first still has it. Waiting for the queue has no deadline, because
//! without the queue the message cannot be handed on.

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
    /// Begins to hold a message, for at most `longest`.
    pub(crate) fn new(
        is_ours: &'a (dyn Fn() -> bool + Sync),
        longest: Duration,
        stopping: &'a CancellationToken,
    ) -> Self {
        Self { is_ours, deadline: Instant::now() + longest, stopping }
    }

    /// Returns true if the message still belongs to this worker: its consumer has not lost the
    /// connection.
    pub(crate) fn is_ours(&self) -> bool {
        (self.is_ours)()
    }

    /// Returns true if the message was held for as long as it may be.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Returns true if the worker is stopping.
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
