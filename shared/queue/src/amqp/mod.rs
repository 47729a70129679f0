//! The RabbitMQ engine, for 3.10 to 4.x without plugins.
//!
//! What it stands on: quorum queues, publisher confirms with the mandatory flag, manual acks with
//! prefetch, and at-least-once dead-lettering between the queues. What is declared is in
//! [`topology`](super::topology); how, in `declare`.
//!
//! Nothing here trusts a connection to last. Publisher and consumers each own theirs and open
//! another one, with everything that belongs to it, whenever it breaks. The client library's own
//! recovery stays off.
//!
//! - `hosts`, `link`, `declare`: a connection with everything declared
//! - `publisher`: the handle; `publishing`: one task that publishes; `in_flight`: confirms, and
//!   what they are worth
//! - `consumer`, `delivery`: prefetch, and settling
//! - `control`, `greeting`, `probe`: what operators ask
//! - `pass`: looking into a queue; `dead`, `letter`, `peek`: at what

mod backoff;
mod consumer;
mod control;
mod dead;
mod declare;
mod delivery;
mod error;
mod greeting;
mod hosts;
mod in_flight;
mod letter;
mod link;
mod pass;
mod peek;
mod probe;
mod publisher;
mod publishing;
mod settings;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use lapin::types::FieldTable;
use push_model::time::UnixMillis;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    consumer::AmqpConsumer, control::Control, dead::Action, link::Dialer, publisher::Publisher,
};
pub use self::{hosts::check_url, settings::AmqpSettings};
use super::{Consumer, DeadLetter, Lane, Queue, QueueError, SampleSize, topology::Names};

/// Every queue that [`AmqpQueue::connect`] declares under a namespace, for programs that look at
/// the server itself.
///
/// # Errors
/// What is wrong with the namespace.
pub fn queue_names(namespace: &str) -> Result<Vec<String>, String> {
    let names = Names::new(push_model::namespace::namespace(namespace)?);
    Ok(names.topology().queues.into_iter().map(|queue| queue.name).collect())
}

/// A queue on a RabbitMQ server or cluster.
#[derive(Debug)]
pub struct AmqpQueue {
    dialer: Dialer,
    publisher: Publisher,
    control: Control,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl AmqpQueue {
    /// Connects, and declares all queues under the namespace.
    ///
    /// # Errors
    /// [`QueueError::Topology`] if there are queues of these names with other properties,
    /// [`QueueError::Unavailable`] if the server cannot be reached or refuses the user.
    pub async fn connect(
        url: &str,
        namespace: &str,
        settings: AmqpSettings,
    ) -> Result<Self, QueueError> {
        let dialer = Dialer::new(url, namespace, settings)?;
        let (tasks, closing) = (TaskTracker::new(), CancellationToken::new());
        let (publisher, task) = Publisher::start(dialer.clone(), closing.clone()).await?;
        tasks.spawn(task);
        Ok(Self { control: Control::new(dialer.clone()), dialer, publisher, tasks, closing })
    }

    fn names(&self) -> &Names {
        &self.dialer.names
    }
}

#[async_trait]
impl Queue for AmqpQueue {
    async fn publish(&self, lane: Lane, payload: Bytes) -> Result<(), QueueError> {
        self.publisher.publish(self.names().now(lane), payload, FieldTable::default()).await
    }

    async fn publish_later(
        &self,
        lane: Lane,
        payload: Bytes,
        delay: Duration,
    ) -> Result<(), QueueError> {
        let to = self.names().later(lane, delay);
        self.publisher.publish(to, payload, FieldTable::default()).await
    }

    async fn consume(&self, lane: Lane, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError> {
        if self.closing.is_cancelled() {
            return Err(QueueError::Closed);
        }
        let (consumer, task) =
            AmqpConsumer::start(self.dialer.clone(), lane, prefetch, &self.closing).await?;
        self.tasks.spawn(task);
        Ok(Box::new(consumer))
    }

    async fn depth(&self, lane: Lane) -> Result<u64, QueueError> {
        let channel = self.control.channel().await?;
        Ok(self.control.ready(&channel, &self.names().lane(lane)).await?)
    }

    async fn peek(&self, lane: Lane, size: SampleSize) -> Result<Vec<Bytes>, QueueError> {
        peek::peek(&self.control, &self.publisher, lane, size).await
    }

    async fn publish_dead(
        &self,
        lane: Lane,
        payload: Bytes,
        reason: &str,
    ) -> Result<(), QueueError> {
        let headers = letter::headers(lane, reason, UnixMillis::now());
        self.publisher.publish(self.names().aside(), payload, headers).await
    }

    async fn dead(&self, limit: usize) -> Result<Vec<DeadLetter>, QueueError> {
        dead::list(&self.control, limit).await
    }

    async fn replay_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError> {
        dead::act(&self.control, only, Action::Replay(&self.publisher)).await
    }

    async fn drop_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError> {
        dead::act(&self.control, only, Action::Drop).await
    }

    fn blocked(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.publisher.blocked()
    }

    async fn ping(&self) -> Result<(), QueueError> {
        self.publisher.is_usable()?;
        Ok(self.control.ping().await?)
    }

    async fn takes_messages(&self) -> Result<(), QueueError> {
        probe::takes_messages(&self.dialer).await
    }

    async fn describe(&self) -> Result<String, QueueError> {
        Ok(greeting::describe(&self.dialer).await?)
    }

    /// Waits until what is in flight is confirmed, for as long as a confirm may take, but not
    /// while the server takes nothing. Deliveries that are still undecided are delivered again.
    async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.control.close().await;
        self.tasks.wait().await;
    }
}
