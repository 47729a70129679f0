//! Consuming: deliveries, and how each is settled once.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::QueueError;

/// A stream of deliveries of one lane.
#[async_trait]
pub trait Consumer: Send {
    /// Waits for the next delivery, also through lost connections. Cancelling the call loses
    /// nothing.
    ///
    /// # Errors
    /// [`QueueError::Closed`] when the engine is closed, [`QueueError::Topology`] when no retry can
    /// help. Passing failures are waited out, not reported.
    async fn next(&mut self) -> Result<Delivery, QueueError>;

    /// Tells if the consumer has a connection, so that messages can come: false from when a lost
    /// connection is noticed until the consumer has another one. Always true for an engine without
    /// connections.
    fn connected(&self) -> watch::Receiver<bool>;
}

/// A message that was delivered to a consumer and is not settled yet.
pub struct Delivery {
    /// The envelope.
    pub payload: Bytes,
    /// The number of deliveries of the message, including this one: 1 is the first.
    ///
    /// It can be more than its consumers saw: a message that was on its way to a consumer that
    /// ended may count.
    pub deliveries: u32,
    settle: Box<dyn Settle>,
}

/// Tells the engine the disposition of a delivery. Dropping it unused must lead to a redelivery.
#[async_trait]
pub trait Settle: Send + Sync {
    /// See [`Delivery::ack`].
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    async fn ack(self: Box<Self>) -> Result<(), QueueError>;

    /// See [`Delivery::requeue`].
    ///
    /// # Errors
    /// As [`Delivery::requeue`].
    async fn requeue(self: Box<Self>) -> Result<(), QueueError>;

    /// See [`Delivery::is_ours`].
    fn is_ours(&self) -> bool;
}

impl Delivery {
    /// For engines: a delivery of a message, `deliveries` counted from 1.
    pub fn new(payload: Bytes, deliveries: u32, settle: Box<dyn Settle>) -> Self {
        Self { payload, deliveries, settle }
    }

    /// Returns the same delivery with the contents of its payload.
    #[must_use]
    pub fn with(self, payload: Bytes, deliveries: u32) -> Self {
        Self { payload, deliveries, ..self }
    }

    /// Returns true if this consumer still holds the message, as far as the engine knows without
    /// asking its server: the session that delivered it, or its lease, has not ended, so that the
    /// queue has not delivered it to another consumer. True is no promise: a session that dies in
    /// silence is noticed only after a while (RabbitMQ: two heartbeats).
    pub fn is_ours(&self) -> bool {
        self.settle.is_ours()
    }

    /// Acknowledges the message, which removes it from the queue.
    ///
    /// # Errors
    /// If the engine could not store that; the message will be delivered again.
    pub async fn ack(self) -> Result<(), QueueError> {
        self.settle.ack().await
    }

    /// Gives the message back to its lane, for any consumer.
    ///
    /// # Errors
    /// If the engine could not be told; the message will still be delivered again.
    pub async fn requeue(self) -> Result<(), QueueError> {
        self.settle.requeue().await
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("bytes", &self.payload.len())
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}
