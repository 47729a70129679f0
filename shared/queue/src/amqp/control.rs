//! The operator's requests: how deep a lane is, and whether the server answers.
//!
//! They share one connection, opened when it is first needed and again when it is found broken.
//! Each request has a channel of its own, because a request that fails takes its channel with it.

use std::time::Duration;

use lapin::{Channel, Connection, options::QueueDeclareOptions, types::FieldTable};
use tokio::sync::Mutex;

use super::{
    error::{AmqpError, within},
    link::Dialer,
};

/// The connection for requests.
#[derive(Debug)]
pub(super) struct Control {
    dialer: Dialer,
    connection: Mutex<Option<Connection>>,
}

impl Control {
    pub(super) fn new(dialer: Dialer) -> Self {
        Self { dialer, connection: Mutex::new(None) }
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// A new channel. That it could be opened shows that the server answers.
    pub(super) async fn channel(&self) -> Result<Channel, AmqpError> {
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

    /// How many messages are ready in a queue, by [`ready`].
    pub(super) async fn ready(&self, channel: &Channel, queue: &str) -> Result<u64, AmqpError> {
        ready(channel, queue, self.dialer.settings.request_timeout).await
    }

    /// Opens a channel and closes it: two answers of the server.
    pub(super) async fn ping(&self) -> Result<(), AmqpError> {
        let channel = self.channel().await?;
        self.finish(&channel).await
    }

    /// Closes a channel, and with that waits until everything sent on it has been taken.
    pub(super) async fn finish(&self, channel: &Channel) -> Result<(), AmqpError> {
        within(self.dialer.settings.request_timeout, channel.close(200, "done".into())).await
    }

    /// Closes the connection.
    pub(super) async fn close(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            let close = connection.close(200, "closing".into());
            // Nothing is left to do on it, so its answer does not matter.
            let _ = within(self.dialer.settings.request_timeout, close).await;
        }
    }
}

/// How many messages are ready in a queue. Those that are with consumers do not count: only the
/// management plugin tells.
pub(super) async fn ready(
    channel: &Channel,
    queue: &str,
    bound: Duration,
) -> Result<u64, AmqpError> {
    let look = QueueDeclareOptions::durable().passive();
    let seen = channel.queue_declare(queue.into(), look, FieldTable::default());
    Ok(within(bound, seen).await?.message_count().into())
}
