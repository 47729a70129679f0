//! A publish on its way from its caller to the task that sends it.

use bytes::Bytes;
use lapin::types::FieldTable;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{QueueError, amqp::topology::Address};

/// One message to publish.
#[derive(Debug)]
pub(super) struct PublishRequest {
    pub(super) to: Address,
    pub(super) payload: Bytes,
    pub(super) headers: FieldTable,
    pub(super) pending: PendingConfirm,
}

/// Answers the caller of a publish when its confirm has come or its session has ended. Until then
/// it holds the permit of the publish.
#[derive(Debug)]
pub(super) struct PendingConfirm {
    answer: oneshot::Sender<Result<(), QueueError>>,
    _permit: OwnedSemaphorePermit,
}

impl PendingConfirm {
    /// The sending and the receiving end of the answer.
    pub(super) fn new(
        permit: OwnedSemaphorePermit,
    ) -> (Self, oneshot::Receiver<Result<(), QueueError>>) {
        let (answer, outcome) = oneshot::channel();
        (Self { answer, _permit: permit }, outcome)
    }

    pub(super) fn answer(self, outcome: Result<(), QueueError>) {
        // The receiver is gone if the caller dropped the publish.
        let _ = self.answer.send(outcome);
    }
}
