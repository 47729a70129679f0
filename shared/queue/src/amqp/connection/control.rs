//! The connection for requests about the queues: depth, and the dead letters.
//!
//! The requests share one connection, opened when it is first needed and again when it is found
//! broken. Each request has a channel of its own, because a failed request closes its channel.

use lapin::{Channel, Connection};
use tokio::sync::Mutex;

use super::dialer::Dialer;
use crate::amqp::{
    error::{AmqpError, within},
    topology::{Counts, counts, ready_count},
};

/// The connection for requests.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    dialer: Dialer,
    connection: Mutex<Option<Connection>>,
}

impl ControlConnection {
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { dialer, connection: Mutex::new(None) }
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    pub(crate) async fn channel(&self) -> Result<Channel, AmqpError> {
        let bound = self.dialer.settings.request_timeout;
        let mut connection = self.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|open| open.status().connected()) {
            match within(bound, open.create_channel()).await {
                Ok(channel) => return Ok(channel),
                Err(error) => tracing::debug!(%error, "the connection for requests was lost"),
            }
        }
        *connection = None;
        let open = connection.insert(self.dialer.connect("control").await?);
        within(bound, open.create_channel()).await
    }

    /// Returns how many messages of a queue are ready, as [`ready_count`].
    pub(crate) async fn ready_count(
        &self,
        channel: &Channel,
        queue: &str,
    ) -> Result<u64, AmqpError> {
        ready_count(channel, queue, self.dialer.settings.request_timeout).await
    }

    /// Returns what the server says of a queue.
    pub(crate) async fn counts(&self, channel: &Channel, queue: &str) -> Result<Counts, AmqpError> {
        counts(channel, queue, self.dialer.settings.request_timeout).await
    }

    /// Closes a channel, which also waits until the server has received everything sent on it.
    pub(crate) async fn close_channel(&self, channel: &Channel) -> Result<(), AmqpError> {
        within(self.dialer.settings.request_timeout, channel.close(200, "done".into())).await
    }

    pub(crate) async fn close(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            let close = connection.close(200, "closing".into());
            // The connection is not used any more, so a failure does not matter.
            let _ = within(self.dialer.settings.request_timeout, close).await;
        }
    }
}
