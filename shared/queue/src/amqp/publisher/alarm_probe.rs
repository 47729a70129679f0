//! Checks that the server takes messages (has no memory or disk alarm), without storing one.
//!
//! RabbitMQ announces an alarm to a connection only when it publishes. So this publishes, on a
//! connection of its own, to a name that no queue has: RabbitMQ drops the message and confirms it.
//! It does so twice: the server may still confirm the message at which it announces an alarm, but
//! it does not read the next one.

use std::{pin::pin, sync::Arc};

use futures::{Stream, StreamExt};
use lapin::{
    BasicProperties, Confirmation, Event,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use uuid::Uuid;

use crate::{
    QueueError,
    amqp::{
        connection::Dialer,
        error::{AmqpError, within},
    },
};

/// Not empty, so that a server that stops reading after the message's header cannot confirm it.
const MESSAGE: &[u8] = b"does the server take messages?";

/// Publishes twice, on a new connection.
pub(crate) async fn takes_messages(dialer: &Dialer) -> Result<(), QueueError> {
    let bound = dialer.settings.request_timeout;
    let connection = dialer.connect("probe").await?;
    let mut events = pin!(connection.events_listener());
    let channel = within(bound, connection.create_channel()).await?;
    within(bound, channel.confirm_select(ConfirmSelectOptions::default())).await?;
    let nowhere = Uuid::now_v7().to_string();
    for _ in 0..2 {
        let publish = async {
            let (options, properties) =
                (BasicPublishOptions::default(), BasicProperties::default());
            let key = nowhere.as_str().into();
            channel.basic_publish("".into(), key, options, MESSAGE, properties).await?.await
        };
        tokio::select! {
            biased;
            // Nothing can be sent on a blocked connection, so it is dropped without closing it.
            reason = blocked(&mut events) => return Err(QueueError::Blocked(reason)),
            confirmed = within(bound, publish) => match confirmed? {
                Confirmation::Ack(_) => {}
                Confirmation::Nack(_) => return Err(AmqpError::Nacked.into()),
                Confirmation::NotRequested => return Err(AmqpError::NotConfirming.into()),
            }
        }
    }
    Ok(within(bound, connection.close(200, "done".into())).await?)
}

/// Waits until the server blocks the connection, and returns the reason.
async fn blocked(mut events: impl Stream<Item = Event> + Unpin) -> Arc<str> {
    while let Some(event) = events.next().await {
        if let Event::ConnectionBlocked(reason) = event {
            return reason.into();
        }
    }
    // The connection has ended, which fails the publish.
    std::future::pending().await
}
