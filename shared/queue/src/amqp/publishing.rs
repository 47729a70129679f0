//! Publishing with confirms: the task that does it.
//!
//! One task owns the publishing channel, because the client library makes sharing it unsound: a
//! publish takes its number and queues its frames under two different locks. Two tasks that
//! publish on one channel can be numbered in one order and sent in the other, and then each gets
//! the other's confirm.
//!
//! The task hands every outcome that is there to [`InFlight`] at once, which knows what they are
//! worth together and when the session has to end. The next session declares the topology again.
//!
//! A server that is short of memory or disk stops reading from a connection at its next publish,
//! and says so. The client library sends nothing on such a connection, not even heartbeats, and
//! the server expects none. What was sent or handed to the library by then stays in flight and is
//! stored when the alarm ends; what comes later is refused.
//!
//! Work that gets stuck: a publish that stays unconfirmed for several times as long as confirms
//! may take, on a connection that the server has not blocked, ends the session: the next one sends
//! afresh. Time in which the connection was blocked does not count. Closing waits for the last
//! confirms as long as one may take, and not at all while the connection is blocked.

use std::{pin::pin, sync::Arc, time::Instant};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Event,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::FieldTable,
};
use tokio::{
    sync::{mpsc, watch},
    time::{interval, sleep},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    backoff::Backoff,
    error::{AmqpError, chain, within},
    in_flight::{InFlight, Outcome},
    link::{Dialer, Link},
    publisher::Request,
};
use crate::{QueueError, topology::Address};

/// A publish that is unconfirmed for so many times the time that one may take ends the session.
const OVERDUE: u32 = 3;

/// AMQP's number for "write it to disk".
const PERSISTENT: u8 = 2;

/// Owner of the publishing channel.
pub(super) struct Task {
    dialer: Dialer,
    backoff: Backoff,
    queue: mpsc::Receiver<Request>,
    /// Why the server takes no messages, while it takes none.
    blocked: watch::Sender<Option<Arc<str>>>,
    closing: CancellationToken,
}

impl Task {
    /// Opens the connection; what is given back publishes until `closing`.
    pub(super) async fn start(
        dialer: Dialer,
        queue: mpsc::Receiver<Request>,
        blocked: watch::Sender<Option<Arc<str>>>,
        closing: CancellationToken,
    ) -> Result<impl Future<Output = ()> + Send + 'static, AmqpError> {
        let first = open(&dialer).await?;
        let backoff = Backoff::new(&dialer.settings);
        Ok(Self { dialer, backoff, queue, blocked, closing }.run(first))
    }

    async fn run(mut self, first: Link) {
        let mut link = first;
        loop {
            let since = Instant::now();
            let served = self.serve(&link).await;
            self.announce(None);
            let Err(error) = served else {
                // On a blocked connection nothing is sent, a good-bye neither.
                if !link.connection.status().blocked() {
                    // Nothing is left to do on it, so its answer does not matter.
                    let close = link.connection.close(200, "closing".into());
                    let _ = within(self.dialer.settings.request_timeout, close).await;
                }
                return;
            };
            tracing::warn!(error = chain(&error), "the publishing connection was lost");
            drop(link);
            self.backoff.session_lasted(since.elapsed());
            match self.reopen(error).await {
                Some(new) => link = new,
                None => return,
            }
        }
    }

    /// Opens a new connection, however often it takes; `None` when closing.
    async fn reopen(&mut self, mut error: AmqpError) -> Option<Link> {
        loop {
            let pause = sleep(self.backoff.pause(rand::random()));
            self.refuse_during(pause, &error).await?;
            let dialer = self.dialer.clone();
            match self.refuse_during(open(&dialer), &error).await? {
                Ok(link) => {
                    tracing::info!("the publishing connection is open again");
                    return Some(link);
                }
                Err(failure) => {
                    tracing::warn!(error = chain(&failure), "cannot open a publishing connection");
                    error = failure;
                }
            }
        }
    }

    /// Answers every publish with the error while something takes its time; `None` when closing.
    async fn refuse_during<T>(
        &mut self,
        work: impl Future<Output = T>,
        error: &AmqpError,
    ) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                done = &mut work => return Some(done),
                request = self.queue.recv() => request?.waiting.answer(Err(error.clone().into())),
            }
        }
    }

    /// Publishes until the session ends. `Ok` when closing, after the last confirm.
    async fn serve(&mut self, link: &Link) -> Result<(), AmqpError> {
        let mut events = pin!(link.connection.events_listener());
        let mut sending = FuturesUnordered::new();
        let mut in_flight = InFlight::default();
        let (heartbeat, patience) =
            (self.dialer.settings.heartbeat, self.dialer.settings.publish_timeout);
        let overdue = patience.saturating_mul(OVERDUE);
        let mut looks = interval(heartbeat);
        let mut last_call = pin!(self.closing.clone().cancelled_owned());
        let mut closing_at = None;
        let result = loop {
            if let Some(at) = closing_at {
                let all_confirmed = sending.is_empty() && self.queue.is_empty();
                if all_confirmed || self.is_blocked() || Instant::now() >= at {
                    break Ok(());
                }
            }
            tokio::select! {
                biased;
                Some(first) = sending.next(), if !sending.is_empty() => {
                    let mut outcomes = vec![first];
                    while let Some(Some(more)) = sending.next().now_or_never() {
                        outcomes.push(more);
                    }
                    if let Err(error) = in_flight.conclude(outcomes) {
                        break Err(error);
                    }
                }
                event = events.next() => {
                    if let Err(error) = self.heed(event, &mut in_flight) {
                        break Err(error);
                    }
                }
                _ = looks.tick() => {
                    let since = in_flight.unconfirmed_since().filter(|_| !self.is_blocked());
                    if since.is_some_and(|since| since.elapsed() > overdue) {
                        break Err(AmqpError::Late(overdue));
                    }
                }
                () = &mut last_call, if closing_at.is_none() => {
                    closing_at = Some(Instant::now() + patience);
                    self.queue.close();
                }
                () = sleep(patience), if closing_at.is_some() => {}
                request = self.queue.recv(), if closing_at.is_none() || !self.queue.is_empty() => {
                    let Some(Request { to, payload, headers, waiting }) = request else {
                        closing_at = Some(Instant::now() + patience);
                        continue;
                    };
                    if let Some(reason) = self.blocked.borrow().clone() {
                        waiting.answer(Err(QueueError::Blocked(reason)));
                    } else {
                        let id = in_flight.enter(waiting);
                        sending.push(send(link.channel.clone(), id, to, payload, headers));
                    }
                }
            }
        };
        in_flight.abandon(result.as_ref().err().unwrap_or(&AmqpError::SessionOver));
        result
    }

    /// Takes note of what the connection says about itself.
    fn heed(&self, event: Option<Event>, in_flight: &mut InFlight) -> Result<(), AmqpError> {
        match event {
            Some(Event::Error(error)) => return Err(error.into()),
            Some(Event::ConnectionBlocked(reason)) => {
                tracing::warn!(reason, "RabbitMQ takes no messages for now");
                self.announce(Some(reason.into()));
            }
            Some(Event::ConnectionUnblocked) => {
                tracing::info!("RabbitMQ takes messages again");
                in_flight.go_on();
                self.announce(None);
            }
            Some(_) => {}
            None => return Err(AmqpError::SessionOver),
        }
        Ok(())
    }

    fn is_blocked(&self) -> bool {
        self.blocked.borrow().is_some()
    }

    fn announce(&self, reason: Option<Arc<str>>) {
        self.blocked.send_if_modified(|known| {
            let news = *known != reason;
            *known = reason;
            news
        });
    }
}

async fn open(dialer: &Dialer) -> Result<Link, AmqpError> {
    let link = dialer.open("publisher").await?;
    let options = ConfirmSelectOptions::default();
    within(dialer.settings.request_timeout, link.channel.confirm_select(options)).await?;
    Ok(link)
}

/// Sends one message and waits for its confirm. Polled by one task only, so that the messages are
/// numbered in the order in which they are sent.
async fn send(
    channel: Channel,
    id: Uuid,
    to: Address,
    payload: Bytes,
    headers: FieldTable,
) -> Outcome {
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(id.to_string().into())
        .with_headers(headers);
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let (exchange, key) = (to.exchange.into(), to.routing_key.into());
    let confirmation =
        async { channel.basic_publish(exchange, key, options, &payload, properties).await?.await };
    (id, confirmation.await)
}
