//! The errors of queue operations.

use std::sync::Arc;

/// The error of a queue operation. It says if the message may be stored nevertheless.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The server cannot be reached, or the session ended: a retry can help. A message that was
    /// being published may be stored.
    #[error("the queue is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server has announced that it takes no messages for now, with the reason (a memory alarm,
    /// a disk alarm). A message that was being published at that moment may be stored.
    #[error("the queue takes no messages for now: {0}")]
    Blocked(Arc<str>),
    /// The server answered that it did not store the message (a nack, a full queue).
    #[error("the queue refused the message: {0}")]
    Refused(String),
    /// The message was routed to no queue: the topology is not declared.
    #[error("the message reached no queue: is the topology declared?")]
    Unroutable,
    /// The server or the file has something else under this name, which only an operator can fix.
    #[error("the queue's topology does not match")]
    Topology(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The engine is shutting down.
    #[error("the queue is closed")]
    Closed,
}

impl QueueError {
    /// One word for errors of this kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Blocked(_) => "blocked",
            Self::Refused(_) => "refused",
            Self::Unroutable => "unroutable",
            Self::Topology(_) => "topology",
            Self::Closed => "closed",
        }
    }
}

/// A server's refusal to let the program in: the user, the password or the virtual host is wrong, or the
/// user lacks a permission. It is the source of a [`QueueError`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AccessRefused(pub(crate) String);

impl AccessRefused {
    /// The answer behind an error, if it is one.
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        causes.find_map(|cause| cause.downcast_ref())
    }
}
