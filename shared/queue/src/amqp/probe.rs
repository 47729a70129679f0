//! Whether the server takes messages now, found out without storing one.
//!
//! RabbitMQ tells a connection of an alarm only when it publishes. So this publishes, on a
//! connection of its own, to a name that no queue has: RabbitMQ drops the message and confirms it.
//! It does so twice: nothing says that the message at which a server tells of its alarm is not
//! confirmed, but the next one is not read any more.

use std::{pin::pin, sync::Arc};

use futures::{Stream, StreamExt};
use lapin::{
    BasicProperties, Confirmation, Event,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use uuid::Uuid;

use super::{
    error::{AmqpError, within},
    link::Dialer,
};
use crate::QueueError;

/// Not empty, so that a server that stops reading at its head cannot confirm it.
const MESSAGE: &[u8] = b"does the server take messages?";

/// Asks the server.
pub(super) async fn takes_messages(dialer: &Dialer) -> Result<(), QueueError> {
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
            // Nothing is sent on a blocked connection, so it is left to its end without a word.
            reason = block(&mut events) => return Err(QueueError::Blocked(reason)),
            confirmed = within(bound, publish) => match confirmed? {
                Confirmation::Ack(_) => {}
                Confirmation::Nack(_) => return Err(AmqpError::Nacked.into()),
                Confirmation::NotRequested => return Err(AmqpError::NotConfirming.into()),
            }
        }
    }
    Ok(within(bound, connection.close(200, "done".into())).await?)
}

/// The reason when the connection is blocked.
async fn block(mut events: impl Stream<Item = Event> + Unpin) -> Arc<str> {
    while let Some(event) = events.next().await {
        if let Event::ConnectionBlocked(reason) = event {
            return reason.into();
        }
    }
    // The connection has ended, which the publish tells.
    std::future::pending().await
}
