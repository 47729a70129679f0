//! The queue between `ingest` and the workers: what every engine promises.
//!
//! Constraints every engine lives under:
//! - [`Queue::publish`] returns `Ok` only for a message that is durably stored *and* routed.
//! - A [`Delivery`] is settled exactly once, because settling consumes it. One that is dropped
//!   undecided comes back: undecided means redeliver.
//! - Prefetch is the only back-pressure: an engine never hands out more undecided deliveries of
//!   a consumer than it was asked for, also after it lost and regained its server.
//!
//! Work that gets stuck: what is delivered [`MAX_DELIVERIES`] times without being settled (its
//! consumer died each time) goes to the dead lane, as does what a worker cannot read. An engine
//! may count what is given back on purpose as well.

pub mod amqp;
pub mod sqlite;
mod topology;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::time::UnixMillis;

/// How often a message is delivered before it is taken for the one that kills its consumers.
pub const MAX_DELIVERIES: u32 = 20;

/// The longest delay of [`Queue::publish_later`], just under an hour (`7 * 2^9` s: what fits into
/// the delay queues of RabbitMQ without being rounded).
pub const MAX_DELAY: Duration = Duration::from_secs(3584);

/// One queue of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Accepted pushes, in group-commit batches.
    Jobs,
    /// Slices of broadcasts.
    Tasks,
}

impl Lane {
    /// Every lane that workers consume.
    pub const ALL: [Self; 2] = [Self::Jobs, Self::Tasks];

    /// The name in queue names, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Tasks => "tasks",
        }
    }

    /// The lane with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.name() == name)
    }
}

/// Why the queue did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The server cannot be reached, or the connection broke: another try can help.
    #[error("the queue is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server answered that it did not take the message (a nack, a full queue).
    #[error("the queue refused the message: {0}")]
    Refused(String),
    /// No queue is bound where the message was sent; the topology is not declared.
    #[error("the message reached no queue: is the topology declared?")]
    Unroutable,
    /// The server has a queue of this name with other properties.
    #[error("the queue's topology does not match")]
    Topology(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The engine is shutting down.
    #[error("the queue is closed")]
    Closed,
}

/// How much [`Queue::peek`] looks at: it ends when either is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleSize {
    /// Messages.
    pub messages: usize,
    /// Bytes of payload; the message that reaches them is the last.
    pub bytes: usize,
}

/// A message that nobody could process, as `pushctl dead` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Names it for [`Queue::replay_dead`] and [`Queue::drop_dead`].
    pub id: String,
    /// Where it came from; none if that is not known any more.
    pub lane: Option<Lane>,
    /// Why it is here.
    pub reason: String,
    /// When it came here; none if that is not known.
    pub died_at: Option<UnixMillis>,
    /// The envelope as it was.
    pub payload: Bytes,
}

/// A durable queue with several lanes.
#[async_trait]
pub trait Queue: Send + Sync + fmt::Debug {
    /// Stores a message durably at the end of a lane.
    ///
    /// # Errors
    /// If it is not certain that the message is stored. It may be stored all the same.
    async fn publish(&self, lane: Lane, payload: Bytes) -> Result<(), QueueError>;

    /// Stores a message durably that becomes visible after `delay`, at the end of its lane.
    /// Engines may round the delay up, by at most a quarter and one second. One longer than
    /// [`MAX_DELAY`] is cut to it: who needs more looks at the clock when the message comes.
    ///
    /// # Errors
    /// As [`Queue::publish`].
    async fn publish_later(
        &self,
        lane: Lane,
        payload: Bytes,
        delay: Duration,
    ) -> Result<(), QueueError>;

    /// Starts to consume a lane with at most `prefetch` undecided deliveries. The consumer
    /// outlives lost connections; stopping it is dropping it.
    ///
    /// # Errors
    /// If the first connection fails.
    async fn consume(&self, lane: Lane, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError>;

    /// How many messages wait in a lane. Those in work are counted only by an engine that can see
    /// them (RabbitMQ cannot without plugins), those that are delayed by none.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn depth(&self, lane: Lane) -> Result<u64, QueueError>;

    /// Looks at the messages that a lane hands out next, and leaves them there.
    ///
    /// A look never loses a message, nor puts one aside. It may count as a delivery, and an
    /// engine that counts moves a message that was looked at too often to the end of its lane; up
    /// to then the order stays as it is, unless somebody else looks at fewer messages. Consumers
    /// may not see the messages while they are being looked at.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn peek(&self, lane: Lane, size: SampleSize) -> Result<Vec<Bytes>, QueueError>;

    /// Puts a message aside with the reason why it cannot be processed.
    ///
    /// # Errors
    /// As [`Queue::publish`].
    async fn publish_dead(
        &self,
        lane: Lane,
        payload: Bytes,
        reason: &str,
    ) -> Result<(), QueueError>;

    /// The dead letters, oldest first, at most `limit`.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn dead(&self, limit: usize) -> Result<Vec<DeadLetter>, QueueError>;

    /// Moves dead letters back to the lanes they came from: those named, or all. Returns how
    /// many were moved; one without a known lane stays.
    ///
    /// # Errors
    /// If the server cannot be asked; what was moved by then stays moved.
    async fn replay_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError>;

    /// Deletes dead letters: those named, or all. Returns how many were deleted.
    ///
    /// # Errors
    /// If the server cannot be asked; what was deleted by then stays deleted.
    async fn drop_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError>;

    /// Whether the server answers now.
    ///
    /// # Errors
    /// Why it does not.
    async fn ping(&self) -> Result<(), QueueError>;

    /// What the server is, for `pushctl doctor`: product and version.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn describe(&self) -> Result<String, QueueError>;

    /// Stops the engine's own tasks and closes its connections.
    async fn close(&self);
}

/// A stream of deliveries of one lane.
#[async_trait]
pub trait Consumer: Send {
    /// The next delivery; waits for one, and through lost connections. Cancelling it loses
    /// nothing.
    ///
    /// # Errors
    /// [`QueueError::Closed`] when the engine is closed, [`QueueError::Topology`] when going on
    /// is pointless. What passes is waited out, not reported.
    async fn next(&mut self) -> Result<Delivery, QueueError>;

    /// Shows whether messages can come: false from when a lost connection is noticed until the
    /// consumer is back on another one. An engine without connections is always open.
    fn open(&self) -> watch::Receiver<bool>;
}

/// A message in somebody's hands until it is settled.
pub struct Delivery {
    /// The envelope.
    pub payload: Bytes,
    /// Whether it may have been delivered before.
    pub redelivered: bool,
    settle: Box<dyn Settle>,
}

/// How an engine learns of the decision. Dropping it must lead to a redelivery.
#[async_trait]
pub trait Settle: Send + Sync {
    /// The message is done with.
    ///
    /// # Errors
    /// If the engine could not store that; the message will be delivered again.
    async fn ack(self: Box<Self>) -> Result<(), QueueError>;

    /// The message goes back to its lane.
    ///
    /// # Errors
    /// If the engine could not be told; the message will be delivered again all the same.
    async fn requeue(self: Box<Self>) -> Result<(), QueueError>;
}

impl Delivery {
    /// Hands out a message; for engines.
    pub fn new(payload: Bytes, redelivered: bool, settle: Box<dyn Settle>) -> Self {
        Self { payload, redelivered, settle }
    }

    /// Settles the message as done.
    ///
    /// # Errors
    /// If the engine could not store that; the message will be delivered again.
    pub async fn ack(self) -> Result<(), QueueError> {
        self.settle.ack().await
    }

    /// Gives the message back for another worker.
    ///
    /// # Errors
    /// If the engine could not be told; the message will be delivered again all the same.
    pub async fn requeue(self) -> Result<(), QueueError> {
        self.settle.requeue().await
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("bytes", &self.payload.len())
            .field("redelivered", &self.redelivered)
            .finish_non_exhaustive()
    }
}
