//! The queue between `ingest` and the workers: what every engine promises.
//!
//! Constraints every engine lives under:
//! - [`Queue::publish`] returns `Ok` only for a message that is durably stored *and* routed. It
//!   does not give up while that may still happen, because a caller that published the message
//!   again would then store it twice.
//! - A [`Delivery`] is settled at most once, because settling consumes it. A delivery that is dropped
//!   without being settled is delivered again.
//! - Prefetch is the only back-pressure: a consumer never has more unsettled deliveries than its
//!   prefetch, even after the engine lost and regained its server.
//!
//! Failures: an engine reports with each delivery how often the message was delivered,
//! and dead-letters nothing by itself. The worker does: a message that cannot be decoded goes to the
//! dead letters, and so does one that was delivered more than [`MAX_DELIVERIES`] times alone
//! ([`Lane::Isolated`]), because its consumer died each time.
//!
//! The engines are [`amqp`] (RabbitMQ) and [`sqlite`] (a file on one machine).

pub mod amqp;
mod counts;
mod delivery;
mod error;
mod isolated;
mod lane;
pub mod sqlite;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_model::time::UnixMillis;
pub use push_sqlite::{DiskUse, ReaderUse};
use tokio::sync::watch;

pub use self::{
    counts::{ConnectionCounts, LaneCounts, QueueCounts},
    delivery::{Consumer, Delivery, Settle},
    error::{AccessRefused, QueueError},
    isolated::IsolatedEnvelope,
    lane::{Lane, WorkLane},
};

/// The most deliveries of a message while its consumer holds no other. A message that is delivered
/// more often ([`Delivery::deliveries`]) is assumed to end its consumers, and the worker
/// dead-letters it.
pub const MAX_DELIVERIES: u32 = 20;

/// The longest delay of [`Queue::publish_later`], just under an hour: `7 * 2^9` s, the longest that
/// the delay queues of RabbitMQ make without rounding.
pub const MAX_DELAY: Duration = Duration::from_secs(3584);

/// A message that no worker could process, as `pushctl dead` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Identifies it for [`Queue::replay_dead`] and [`Queue::drop_dead`].
    pub id: String,
    /// The lane it came from; none if that is unknown.
    pub lane: Option<Lane>,
    /// Why it was dead-lettered.
    pub reason: String,
    /// When it was dead-lettered; none if that is unknown.
    pub died_at: Option<UnixMillis>,
    /// The envelope, unchanged.
    pub payload: Bytes,
}

/// A durable queue with several lanes.
#[async_trait]
pub trait Queue: Send + Sync + fmt::Debug {
    /// Stores a message durably at the end of a lane.
    ///
    /// Waits for the answer for as long as the session lives in which the message was sent. The
    /// engine bounds that wait by ending a session that does not answer. A caller with a shorter
    /// deadline needs a timeout of its own, which does not take the message back. While the server
    /// announces that it takes no messages, publishes that were sent before stay pending, and new
    /// ones are refused immediately.
    ///
    /// # Errors
    /// [`QueueError::Blocked`], [`QueueError::Refused`] and [`QueueError::Unroutable`] if the
    /// message is not stored; [`QueueError::Unavailable`] if its session ended or there was none,
    /// and it may be stored; [`QueueError::Closed`].
    async fn publish(&self, lane: Lane, payload: Bytes) -> Result<(), QueueError>;

    /// Stores a message durably that becomes visible after `delay`, at the end of its lane.
    /// Engines may round the delay up, by at most a quarter and one second. A delay longer than
    /// [`MAX_DELAY`] is cut to it: the consumer of a message that needs more must check the clock.
    ///
    /// # Errors
    /// As [`Queue::publish`].
    async fn publish_later(
        &self,
        lane: Lane,
        payload: Bytes,
        delay: Duration,
    ) -> Result<(), QueueError>;

    /// Starts to consume a lane with at most `prefetch` unsettled deliveries. The consumer
    /// survives lost connections. Dropping it stops it.
    ///
    /// # Errors
    /// If the first connection fails.
    async fn consume(&self, lane: Lane, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError>;

    /// Returns how many messages wait in a lane. Unsettled deliveries are counted only by an engine
    /// that can see them (RabbitMQ cannot without plugins), delayed messages by none.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn depth(&self, lane: Lane) -> Result<u64, QueueError>;

    /// Returns what the queue holds, for metrics: one request for each of the server's queues.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn counts(&self) -> Result<QueueCounts, QueueError>;

    /// Returns what the file of an embedded queue takes of its disk; none for a queue on a server.
    fn disk_use(&self) -> Option<DiskUse> {
        None
    }

    /// Returns how many reads this program runs on the file of an embedded queue now; none for a
    /// queue on a server.
    fn readers(&self) -> Option<ReaderUse> {
        None
    }

    /// The connections to the queue's server on which this program publishes and consumes; none for
    /// an embedded queue. It asks no server.
    fn connections(&self) -> Option<ConnectionCounts> {
        None
    }

    /// Stores a message among the dead letters, with the reason why it cannot be processed.
    ///
    /// # Errors
    /// As [`Queue::publish`].
    async fn publish_dead(
        &self,
        lane: Lane,
        payload: Bytes,
        reason: &str,
    ) -> Result<(), QueueError>;

    /// Hands the dead letters to `visit`, the oldest first, until it returns false. Few of them are in memory
    /// at a time.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn visit_dead(
        &self,
        visit: &mut (dyn FnMut(DeadLetter) -> bool + Send),
    ) -> Result<(), QueueError>;

    /// The dead letters, oldest first, at most `limit`.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn dead(&self, limit: usize) -> Result<Vec<DeadLetter>, QueueError> {
        let mut letters = Vec::new();
        if limit > 0 {
            let mut take = |letter| {
                letters.push(letter);
                letters.len() < limit
            };
            self.visit_dead(&mut take).await?;
        }
        Ok(letters)
    }

    /// Moves dead letters back to the lanes they came from: those named, or all. Returns how
    /// many were moved; one without a known lane stays.
    ///
    /// # Errors
    /// If the server cannot be asked; letters that were moved before that stay moved.
    async fn replay_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError>;

    /// Deletes dead letters: those named, or all. Returns how many were deleted.
    ///
    /// # Errors
    /// If the server cannot be asked; letters that were deleted before that stay deleted.
    async fn drop_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError>;

    /// Why the server takes no messages: set from when the server announces that until it takes
    /// them again or the session ends in which it was announced. With an engine whose server never
    /// announces it, the value stays `None` ([`until_blocked`] then waits for ever).
    ///
    /// RabbitMQ announces it to a connection that publishes, not to one that is idle.
    fn blocked(&self) -> watch::Receiver<Option<Arc<str>>> {
        watch::channel(None).1
    }

    /// Checks that a message would be stored now, by writing something that is not kept: for
    /// `/readyz` and `pushctl doctor`. It costs about as much as one message, so callers ask
    /// seldom.
    ///
    /// # Errors
    /// [`QueueError::Blocked`] if the server takes no messages, any other if it cannot be asked, or
    /// cannot write.
    async fn ping(&self) -> Result<(), QueueError>;

    /// Product and version of the server, for `pushctl doctor`.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn describe(&self) -> Result<String, QueueError>;

    /// Stops the engine's own tasks and closes its connections.
    async fn close(&self);
}

/// Waits until a queue announces that it takes no messages ([`Queue::blocked`]), and returns the
/// reason. Never returns if the queue never does.
pub async fn until_blocked(blocked: &mut watch::Receiver<Option<Arc<str>>>) -> Arc<str> {
    if let Ok(reason) = blocked.wait_for(Option::is_some).await
        && let Some(reason) = &*reason
    {
        return Arc::clone(reason);
    }
    std::future::pending().await
}
