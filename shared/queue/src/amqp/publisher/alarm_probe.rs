//! Checks that the server takes messages (has no memory or disk alarm), without storing one.
//!
//! RabbitMQ announces an alarm to a connection only when it publishes, so a program that has nothing
//! to publish does not hear of it. So this publishes, on a connection of its own, to a name that no
//! queue has: RabbitMQ drops the message and confirms it. It does so twice: the server may still
//! confirm the message at which it announces an alarm, but it does not read the next one.
//!
//! The connection is opened when it is first needed, and kept: the server announces the end of an
//! alarm on it. While it is blocked nothing more is sent on it.
//!
//! Failures: a caller may give up sooner than a server that does not answer is given up.
//! The question then goes on in its own task, until the time-outs of the connection end it, because a
//! connection that is being opened cannot be taken back. A caller that asks meanwhile is told that there is
//! no answer yet, so there is never more than one question.

use std::{pin::Pin, sync::Arc};

use futures::{FutureExt as _, Stream, StreamExt as _};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, Event,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::sync::Mutex;
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

/// Asks whether the server takes messages.
#[derive(Debug)]
pub(crate) struct AlarmProbe {
    dialer: Dialer,
    session: Arc<Mutex<Option<Session>>>,
}

/// The connection for asking.
struct Session {
    connection: Connection,
    channel: Channel,
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
    /// Why the server takes no messages, as it announced on this connection.
    blocked: Option<Arc<str>>,
}

impl AlarmProbe {
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { dialer, session: Arc::default() }
    }

    /// Publishes twice.
    pub(crate) async fn takes_messages(&self) -> Result<(), QueueError> {
        let dialer = self.dialer.clone();
        let Ok(mut session) = Arc::clone(&self.session).try_lock_owned() else {
            return Err(AmqpError::Late(dialer.settings.request_timeout).into());
        };
        let asking = tokio::spawn(async move {
            let is_open = |open: &Session| open.connection.status().connected();
            let open = match session.take().filter(is_open) {
                Some(open) => session.insert(open),
                None => session.insert(Session::open(&dialer).await?),
            };
            let asked = open.ask(&dialer).await;
            if !matches!(asked, Ok(()) | Err(QueueError::Blocked(_))) {
                // The connection may be of no use.
                *session = None;
            }
            asked
        });
        asking.await.map_err(|error| QueueError::Unavailable(Box::new(error)))?
    }

    /// Closes the connection, if there is one that is not blocked.
    pub(crate) async fn close(&self) {
        let Ok(mut session) = self.session.try_lock() else { return };
        if let Some(Session { connection, blocked: None, .. }) = session.take() {
            let close = connection.close(200, "closing".into());
            // The connection is not used any more, so a failure does not matter.
            let _ = within(self.dialer.settings.request_timeout, close).await;
        }
    }
}

impl Session {
    async fn open(dialer: &Dialer) -> Result<Self, AmqpError> {
        let bound = dialer.settings.request_timeout;
        let connection = dialer.connect("probe").await?;
        let events = Box::pin(connection.events_listener());
        let channel = within(bound, connection.create_channel()).await?;
        within(bound, channel.confirm_select(ConfirmSelectOptions::default())).await?;
        Ok(Self { connection, channel, events, blocked: None })
    }

    async fn ask(&mut self, dialer: &Dialer) -> Result<(), QueueError> {
        let Self { channel, events, blocked, .. } = self;
        while let Some(Some(event)) = events.next().now_or_never() {
            note(event, blocked);
        }
        if let Some(reason) = blocked {
            return Err(QueueError::Blocked(Arc::clone(reason)));
        }
        let bound = dialer.settings.request_timeout;
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
                reason = until_blocked(events, blocked) => {
                    return Err(QueueError::Blocked(reason));
                }
                confirmed = within(bound, publish) => match confirmed? {
                    Confirmation::Ack(_) => {}
                    Confirmation::Nack(_) => return Err(AmqpError::Nacked.into()),
                    Confirmation::NotRequested => return Err(AmqpError::NotConfirming.into()),
                }
            }
        }
        Ok(())
    }
}

fn note(event: Event, blocked: &mut Option<Arc<str>>) {
    match event {
        Event::ConnectionBlocked(reason) => *blocked = Some(reason.into()),
        Event::ConnectionUnblocked => *blocked = None,
        _ => {}
    }
}

/// Waits until the server blocks the connection, and returns the reason.
async fn until_blocked(
    events: &mut (impl Stream<Item = Event> + Unpin),
    blocked: &mut Option<Arc<str>>,
) -> Arc<str> {
    while let Some(event) = events.next().await {
        note(event, blocked);
        if let Some(reason) = blocked {
            return Arc::clone(reason);
        }
    }
    // The connection has ended, which fails the publish.
    std::future::pending().await
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("blocked", &self.blocked).finish_non_exhaustive()
    }
}
