//! Publishing with confirms.
//!
//! One task owns the publishing channel, because the client library makes sharing it unsound: a
//! publish takes its number and queues its frames under two different locks. Two tasks that
//! publish on one channel can be numbered in one order and sent in the other, and then each gets
//! the other's confirm.
//!
//! The task hands every outcome that is there to [`InFlight`] at once, which knows what they are
//! worth together and when the session has to end. The next session declares the topology again.
//!
//! Work that gets stuck: a publisher that waits too long gives up, but its place in flight is
//! kept until the confirm comes or the session ends, so a server that takes nothing (a memory
//! alarm, a queue without its majority) costs no more memory than `publishes_in_flight` messages.
//! While there is no connection every publish is answered at once. A publish that stays
//! unconfirmed for several times as long as anybody waited for it, on a connection that the server
//! has not blocked, ends the session: the next one sends afresh.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Event,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::FieldTable,
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    backoff::Backoff,
    error::{AmqpError, chain, within},
    in_flight::{InFlight, Outcome, Waiting},
    link::{Dialer, Link},
};
use crate::queue::{QueueError, topology::Address};

/// A publish that is unconfirmed for so many times the patience of its publisher ends the session.
const OVERDUE: u32 = 3;

/// AMQP's number for "write it to disk".
const PERSISTENT: u8 = 2;

/// The handle that publishes.
#[derive(Debug)]
pub(super) struct Publisher {
    requests: mpsc::Sender<Request>,
    places: Arc<Semaphore>,
    patience: Duration,
}

/// One message on its way.
#[derive(Debug)]
struct Request {
    to: Address,
    payload: Bytes,
    headers: FieldTable,
    waiting: Waiting,
}

impl Publisher {
    /// Opens the connection, and starts the task that keeps it until `closing`.
    pub(super) async fn start(
        dialer: Dialer,
        closing: CancellationToken,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), AmqpError> {
        let places = dialer.settings.publishes_in_flight.clamp(1, Semaphore::MAX_PERMITS);
        let patience = dialer.settings.publish_timeout;
        // One place for each request, so that whoever holds a place never waits for the channel.
        let (requests, queue) = mpsc::channel(places);
        let first = open(&dialer).await?;
        let task = Task { backoff: Backoff::new(&dialer.settings), dialer, queue, closing };
        let publisher = Self { requests, places: Arc::new(Semaphore::new(places)), patience };
        Ok((publisher, task.run(first)))
    }

    /// Whether the task that publishes is there: it ends when the queue is closed, and should it
    /// fail, whoever asks how the queue is must hear of it.
    pub(super) fn is_there(&self) -> Result<(), QueueError> {
        if self.requests.is_closed() { Err(QueueError::Closed) } else { Ok(()) }
    }

    /// Publishes, and waits until the message is confirmed. Giving up does not take it back.
    pub(super) async fn publish(
        &self,
        to: Address,
        payload: Bytes,
        headers: FieldTable,
    ) -> Result<(), QueueError> {
        let publish = async {
            let place =
                self.places.clone().acquire_owned().await.map_err(|_| QueueError::Closed)?;
            let (waiting, outcome) = Waiting::new(place);
            let request = Request { to, payload, headers, waiting };
            self.requests.send(request).await.map_err(|_| QueueError::Closed)?;
            outcome.await.map_err(|_| QueueError::Closed)?
        };
        match timeout(self.patience, publish).await {
            Ok(outcome) => outcome,
            Err(_) => Err(AmqpError::Late(self.patience).into()),
        }
    }
}

async fn open(dialer: &Dialer) -> Result<Link, AmqpError> {
    let link = dialer.open("publisher").await?;
    let options = ConfirmSelectOptions::default();
    within(dialer.settings.request_timeout, link.channel.confirm_select(options)).await?;
    Ok(link)
}

/// Owner of the publishing channel.
struct Task {
    dialer: Dialer,
    backoff: Backoff,
    queue: mpsc::Receiver<Request>,
    closing: CancellationToken,
}

impl Task {
    async fn run(mut self, first: Link) {
        let mut link = first;
        loop {
            let since = Instant::now();
            let served = self.serve(&link).await;
            let Err(error) = served else {
                // Nothing is left to do on it, so its answer does not matter.
                let close = link.connection.close(200, "closing".into());
                let _ = within(self.dialer.settings.request_timeout, close).await;
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
        let mut last_call = pin!(self.closing.clone().cancelled_owned());
        let mut closing = false;
        let mut blocked = false;
        let overdue = self.dialer.settings.publish_timeout.saturating_mul(OVERDUE);
        let mut looks = interval(self.dialer.settings.heartbeat);
        let result = loop {
            if closing && sending.is_empty() && self.queue.is_empty() {
                break Ok(());
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
                    match heed(event) {
                        Ok(heard) => blocked = heard.unwrap_or(blocked),
                        Err(error) => break Err(error),
                    }
                }
                _ = looks.tick() => {
                    if !blocked && in_flight.oldest().is_some_and(|since| since.elapsed() > overdue) {
                        break Err(AmqpError::Late(overdue));
                    }
                }
                () = &mut last_call, if !closing => {
                    closing = true;
                    self.queue.close();
                }
                request = self.queue.recv(), if !closing || !self.queue.is_empty() => {
                    if let Some(Request { to, payload, headers, waiting }) = request {
                        let id = in_flight.enter(waiting);
                        sending.push(send(link.channel.clone(), id, to, payload, headers));
                    } else {
                        closing = true;
                    }
                }
            }
        };
        in_flight.abandon(result.as_ref().err().unwrap_or(&AmqpError::SessionOver));
        result
    }
}

/// What the connection says about itself; whether it is blocked, if it says that.
fn heed(event: Option<Event>) -> Result<Option<bool>, AmqpError> {
    match event {
        Some(Event::Error(error)) => Err(error.into()),
        Some(Event::ConnectionBlocked(reason)) => {
            tracing::warn!(reason, "RabbitMQ takes no messages for now");
            Ok(Some(true))
        }
        Some(Event::ConnectionUnblocked) => {
            tracing::info!("RabbitMQ takes messages again");
            Ok(Some(false))
        }
        Some(_) => Ok(None),
        None => Err(AmqpError::SessionOver),
    }
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
