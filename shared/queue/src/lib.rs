//! The queue between `ingest` and the workers: what every engine promises.
//!
//! Constraints every engine lives under:
//! - [`Queue::publish`] returns `Ok` only for a message that is durably stored *and* routed. It
//!   does not give up while that may still happen: a message that is published again beside the
//!   first try is there twice.
//! - A [`Delivery`] is settled exactly once, because settling consumes it. One that is dropped
//!   undecided comes back: undecided means redeliver.
//! - Prefetch is the only back-pressure: an engine never hands out more undecided deliveries of
//!   a consumer than it was asked for, also after it lost and regained its server.
//!
//! Work that gets stuck: an engine says with each delivery how often the message was handed out,
//! and puts nothing aside by itself. The worker does: what it is handed more than
//! [`MAX_DELIVERIES`] times (its consumer died each time) goes to the dead letters before any work
//! on it, as does what a worker cannot read.

pub mod amqp;
pub mod sqlite;
mod topology;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_model::time::UnixMillis;
use tokio::sync::watch;

/// How often a message is worked on before it is taken for the one that kills its consumers. A
/// worker that is handed it once more ([`Delivery::deliveries`]) puts it aside.
pub const MAX_DELIVERIES: u32 = 20;

/// The longest delay of [`Queue::publish_later`], just under an hour (`7 * 2^9` s: what fits into
/// the delay queues of RabbitMQ without being rounded).
pub const MAX_DELAY: Duration = Duration::from_secs(3584);

/// One queue of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Accepted pushes, in group-commit batches.
    Jobs,
    /// Partitions of messages that are not decided with their job: those of broadcasts, and what
    /// is left of a push to named devices.
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
    /// The server cannot be reached, or the session ended: another try can help. A message that
    /// was being published may be stored.
    #[error("the queue is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server has announced that it takes no messages for now, and why (a memory alarm, a
    /// disk alarm). A message that was being published when it did may be stored.
    #[error("the queue takes no messages for now: {0}")]
    Blocked(Arc<str>),
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

/// Waits until a queue says that it takes no messages, and gives the reason. It waits for ever if
/// the queue never does.
pub async fn until_blocked(blocked: &mut watch::Receiver<Option<Arc<str>>>) -> Arc<str> {
    if let Ok(reason) = blocked.wait_for(Option::is_some).await
        && let Some(reason) = &*reason
    {
        return Arc::clone(reason);
    }
    std::future::pending().await
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
    /// Waits for the answer for as long as the session lives in which the message was sent; an
    /// engine bounds that by ending a session that does not answer. Whoever cannot wait so long
    /// has a time-out of their own, which does not take the message back. While the server
    /// announces that it takes nothing, what was sent before stays awaited, and what was not is
    /// refused at once.
    ///
    /// # Errors
    /// [`QueueError::Blocked`], [`QueueError::Refused`] and [`QueueError::Unroutable`] if the
    /// message is not stored; [`QueueError::Unavailable`] if its session ended or there was none,
    /// and it may be stored; [`QueueError::Closed`].
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
    /// A look never loses a message. It may count as a delivery, and so that no worker puts one
    /// aside for having been looked at, an engine that counts moves it to the end of its lane
    /// before that, where it counts from the start; up to then the order stays as it is, unless
    /// somebody else looks at fewer messages. Consumers may not see the messages while they are
    /// being looked at.
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

    /// Why the server takes no messages, from when it announces that until it takes them again
    /// or the session ends in which it was announced. An engine whose server never does that
    /// has the answer none for good ([`until_blocked`] then waits for ever).
    ///
    /// RabbitMQ announces it to a connection that publishes, not to one that is idle.
    fn blocked(&self) -> watch::Receiver<Option<Arc<str>>> {
        watch::channel(None).1
    }

    /// Whether the server answers now, and has not announced that it takes no messages.
    ///
    /// # Errors
    /// Why it does not; [`QueueError::Blocked`] if it has.
    async fn ping(&self) -> Result<(), QueueError>;

    /// Whether the server takes messages now, found out by giving it some that it does not keep,
    /// for `pushctl doctor`.
    ///
    /// # Errors
    /// [`QueueError::Blocked`] if it takes none, any other if it cannot be asked.
    async fn takes_messages(&self) -> Result<(), QueueError> {
        self.ping().await
    }

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

/// A message that a consumer was given, until it is settled.
pub struct Delivery {
    /// The envelope.
    pub payload: Bytes,
    /// How often the message was handed out, this time included: 1 is the first.
    ///
    /// It can be more than its consumers saw: a message that was on its way to a consumer that
    /// ended may count, and one that was looked at ([`Queue::peek`]).
    pub deliveries: u32,
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

    /// See [`Delivery::is_held`].
    fn is_held(&self) -> bool;
}

impl Delivery {
    /// Hands out a message; for engines.
    pub fn new(payload: Bytes, deliveries: u32, settle: Box<dyn Settle>) -> Self {
        Self { payload, deliveries, settle }
    }

    /// Whether the message is still this consumer's, as far as the engine knows without asking:
    /// the session that delivered it has not ended, or its lease has not, so the queue has not
    /// given it to another consumer. A session that dies in silence is noticed only after a
    /// while (RabbitMQ: two heartbeats), so true is no promise.
    pub fn is_held(&self) -> bool {
        self.settle.is_held()
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
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}
