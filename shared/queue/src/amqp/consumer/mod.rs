//! Consuming a lane, through lost connections.
//!
//! One task for each consumer owns its sessions ([`task`]) and passes deliveries on through a
//! bounded channel, so that a reconnection goes on while no caller waits in `next()`, and
//! cancelling `next()` loses nothing.
//!
//! Prefetch is enforced twice. `basic.qos`, set on every session before it consumes, bounds what
//! the server sends, and with that the client library's own buffer, which has no other bound. And a
//! semaphore permit for each unsettled delivery bounds the messages handed out over all sessions,
//! because deliveries of a lost session are still being worked on when the next one begins.
//!
//! - `task`: the sessions
//! - `delivery`: a delivery and how it is settled

mod delivery;
mod task;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{delivery::UnsettledDelivery, task::ConsumeTask};
use super::{
    connection::{Dialer, ReconnectBackoff},
    error::AmqpError,
};
use crate::{Consumer, Delivery, Lane, QueueError, counts::HeadAge};

/// The receiving end of a consumer; dropping it stops the consumer.
pub(super) struct AmqpConsumer {
    deliveries: mpsc::Receiver<Result<UnsettledDelivery, QueueError>>,
    connected: watch::Receiver<bool>,
    _stop: DropGuard,
}

impl AmqpConsumer {
    /// Opens the first session. The future returned is the task that consumes until the consumer is
    /// dropped or `closing`.
    pub(super) async fn start(
        dialer: Dialer,
        lane: Lane,
        prefetch: u16,
        age: Arc<HeadAge>,
        closing: &CancellationToken,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), AmqpError> {
        // In AMQP zero means unlimited.
        let prefetch = prefetch.max(1);
        let stop = closing.child_token();
        let (out, deliveries) = mpsc::channel(prefetch.into());
        let (has_session, connected) = watch::channel(true);
        let task = ConsumeTask {
            backoff: ReconnectBackoff::new(&dialer.settings),
            permits: Arc::new(Semaphore::new(prefetch.into())),
            dialer,
            lane,
            prefetch,
            age,
            out,
            has_session,
            stop: stop.clone(),
        };
        let first = task.open().await?;
        Ok((Self { deliveries, connected, _stop: stop.drop_guard() }, task.run(first)))
    }
}

#[async_trait]
impl Consumer for AmqpConsumer {
    async fn next(&mut self) -> Result<Delivery, QueueError> {
        loop {
            let delivery = self.deliveries.recv().await.ok_or(QueueError::Closed)??;
            // A delivery whose session ended while it waited here will be delivered again.
            if delivery.is_ours() {
                return Ok(delivery.into_delivery());
            }
        }
    }

    fn connected(&self) -> watch::Receiver<bool> {
        self.connected.clone()
    }
}
