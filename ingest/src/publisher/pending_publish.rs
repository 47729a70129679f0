//! A publish that waits for its batch, and the reasons why it may fail.

use std::sync::Arc;

use push_model::trace_parent::TraceParent;
use tokio::{sync::oneshot, time::Instant};

use crate::{apps::MessagePlaces, body::Reservation};

/// The reason why a push is not known to be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotPublished {
    /// Too many pushes wait for their batch.
    #[error("too many pushes wait for the queue")]
    Full,
    /// The queue refused it, or publishing its batch failed.
    #[error("the queue did not take the message")]
    Refused,
    /// The queue's server has announced that it takes nothing for now, with this reason.
    #[error("the queue takes no messages for now: {0}")]
    Blocked(Arc<str>),
    /// The queue did not confirm it in time.
    #[error("the queue did not confirm the message in time")]
    Late,
    /// The service stops.
    #[error("the service is stopping")]
    Stopping,
}

/// A push, or a group of a batch request, that waits for its envelope and then for the confirm.
pub(super) struct PendingPublish {
    /// The job of a push, or the joined jobs of a group.
    pub(super) jobs: Vec<u8>,
    pub(super) pushes: usize,
    /// This is a group that is not the first of its request. When it is at the front of the
    /// queue, the groups before it are sent. More pushes would delay the request, so it does not
    /// wait for them.
    pub(super) is_continuation: bool,
    pub(super) enqueued_at: Instant,
    /// Its share of the memory for bodies, held until it is answered.
    pub(super) _memory: Reservation,
    /// Its places within the app's quotas of messages, given back unless it is published.
    pub(super) places: Option<Box<MessagePlaces>>,
    /// The request's span, if it is traced. Boxed, because few are and each push has this field.
    pub(super) trace: Option<Box<TraceParent>>,
    pub(super) answer: oneshot::Sender<Result<(), NotPublished>>,
}

impl PendingPublish {
    pub(super) fn answer(self, result: Result<(), NotPublished>) {
        if result.is_ok() {
            self.places.into_iter().for_each(|places| places.confirmed());
        }
        // The receiver is gone if the client hung up. The push is still published.
        let _ = self.answer.send(result);
    }
}
