//! Publishing with confirms: the task that does it.
//!
//! One task owns the publishing channel, because the client library makes sharing it unsound: a
//! publish takes its number and queues its frames under two different locks. Two tasks that
//! publish on one channel can be numbered in one order and sent in the other, and then each gets
//! the other's confirm.
//!
//! The task passes all confirms that have arrived to [`InFlight`] together, which interprets them
//! together and decides when the session has to end. The next session declares the topology again.
//!
//! A server that is short of memory or disk stops reading from a connection at its next publish,
//! and announces that. The client library sends nothing on such a connection, not even heartbeats,
//! and the server expects none. Messages that were handed to the library before that stay in flight
//! and are stored when the alarm ends; later ones are refused.
//!
//! Failures: a publish that stays unconfirmed for [`OVERDUE`] times the time that a
//! confirm may take, on a connection that the server has not blocked, ends the session. Time in
//! which the connection was blocked does not count. Closing waits for the last confirms as long as
//! one may take, and not at all while the connection is blocked.

use std::{pin::pin, sync::Arc, time::Instant};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Event,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::FieldTable,
};
use push_model::causes::with_causes;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{interval, sleep},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    in_flight::{ConfirmResult, InFlight},
    request::PublishRequest,
};
use crate::{
    QueueError,
    amqp::{
        connection::{Dialer, Link, ReconnectBackoff},
        error::{AmqpError, log_lost, within},
        topology::Address,
    },
};

/// A publish that is unconfirmed for this many times the publish timeout ends the session.
const OVERDUE: u32 = 3;

/// AMQP's delivery mode for messages that are written to disk.
const PERSISTENT: u8 = 2;

/// The owner of the publishing channel.
pub(super) struct PublishTask {
    dialer: Dialer,
    backoff: ReconnectBackoff,
    requests: mpsc::Receiver<PublishRequest>,
    state: SessionSignals,
    closing: CancellationToken,
}

/// The state that the task shares with its handles.
pub(super) struct SessionSignals {
    /// Why the server takes no messages; `None` while it takes them.
    pub(super) blocked: watch::Sender<Option<Arc<str>>>,
    /// Why there is no connection; `None` while there is one.
    pub(super) lost: watch::Sender<Option<AmqpError>>,
    /// Ends the pause before the connection is opened again.
    pub(super) reopen: Arc<Notify>,
}

impl PublishTask {
    /// Opens the connection. The future returned publishes until `closing`.
    pub(super) async fn start(
        dialer: Dialer,
        requests: mpsc::Receiver<PublishRequest>,
        state: SessionSignals,
        closing: CancellationToken,
    ) -> Result<impl Future<Output = ()> + Send + 'static, AmqpError> {
        let first = open(&dialer).await?;
        let backoff = ReconnectBackoff::new(&dialer.settings);
        Ok(Self { dialer, backoff, requests, state, closing }.run(first))
    }

    async fn run(mut self, first: Link) {
        let mut link = first;
        loop {
            let since = Instant::now();
            let ended = self.run_session(&link).await;
            self.announce(None);
            let Err(error) = ended else {
                // The client library sends nothing on a blocked connection, so closing would hang.
                if !link.connection.status().blocked() {
                    // The connection is not used any more, so a failure does not matter.
                    let close = link.connection.close(200, "closing".into());
                    let _ = within(self.dialer.settings.request_timeout, close).await;
                }
                return;
            };
            log_lost!(
                error,
                runbook = "rabbitmq-takes-no-messages",
                error = with_causes(&error),
                "the publishing connection was lost"
            );
            drop(link);
            self.backoff.session_lasted(since.elapsed());
            match self.reopen(error).await {
                Some(new) => {
                    self.state.lost.send_replace(None);
                    link = new;
                }
                None => return,
            }
        }
    }

    /// Opens a new connection, trying until it succeeds; `None` when closing.
    async fn reopen(&mut self, mut error: AmqpError) -> Option<Link> {
        loop {
            self.state.lost.send_replace(Some(error.clone()));
            let pause = sleep(self.backoff.pause(rand::random()));
            let reopen = Arc::clone(&self.state.reopen);
            let pause = async {
                tokio::select! {
                    () = pause => {}
                    () = reopen.notified() => {}
                }
            };
            self.refuse_during(pause, &error).await?;
            let dialer = self.dialer.clone();
            match self.refuse_during(open(&dialer), &error).await? {
                Ok(link) => {
                    tracing::debug!("the publishing connection is open again");
                    return Some(link);
                }
                Err(failure) => {
                    let cause = with_causes(&failure);
                    tracing::debug!(error = cause, "cannot open a publishing connection yet");
                    error = failure;
                }
            }
        }
    }

    /// Answers every publish with the error while `work` runs; `None` when closing.
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
                request = self.requests.recv() => {
                    request?.pending.answer(Err(error.clone().into()));
                }
            }
        }
    }

    /// Publishes until the session ends. `Ok` when closing, after the last confirm.
    async fn run_session(&mut self, link: &Link) -> Result<(), AmqpError> {
        let mut events = pin!(link.connection.events_listener());
        let mut sending = FuturesUnordered::new();
        let mut in_flight = InFlight::default();
        let publish_timeout = self.dialer.settings.publish_timeout;
        let overdue = publish_timeout.saturating_mul(OVERDUE);
        let mut overdue_checks = interval(self.dialer.settings.heartbeat);
        let mut closing = pin!(self.closing.clone().cancelled_owned());
        let mut close_deadline = None;
        let result = loop {
            if let Some(deadline) = close_deadline {
                let all_confirmed = sending.is_empty() && self.requests.is_empty();
                if all_confirmed || self.is_blocked() || Instant::now() >= deadline {
                    break Ok(());
                }
            }
            tokio::select! {
                biased;
                Some(first) = sending.next(), if !sending.is_empty() => {
                    let mut arrived = vec![first];
                    while let Some(Some(more)) = sending.next().now_or_never() {
                        arrived.push(more);
                    }
                    if let Err(error) = in_flight.resolve(arrived) {
                        break Err(error);
                    }
                }
                event = events.next() => {
                    if let Err(error) = self.on_event(event, &mut in_flight) {
                        break Err(error);
                    }
                }
                _ = overdue_checks.tick() => {
                    let since = in_flight.unconfirmed_since().filter(|_| !self.is_blocked());
                    if since.is_some_and(|since| since.elapsed() > overdue) {
                        break Err(AmqpError::Late(overdue));
                    }
                }
                () = &mut closing, if close_deadline.is_none() => {
                    close_deadline = Some(Instant::now() + publish_timeout);
                    self.requests.close();
                }
                () = sleep(publish_timeout), if close_deadline.is_some() => {}
                request = self.requests.recv(),
                    if close_deadline.is_none() || !self.requests.is_empty() =>
                {
                    let Some(PublishRequest { to, payload, headers, pending }) = request else {
                        close_deadline = Some(Instant::now() + publish_timeout);
                        continue;
                    };
                    if let Some(reason) = self.state.blocked.borrow().clone() {
                        pending.answer(Err(QueueError::Blocked(reason)));
                    } else {
                        let id = in_flight.insert(pending);
                        sending.push(send(link.channel.clone(), id, to, payload, headers));
                    }
                }
            }
        };
        in_flight.fail_all(result.as_ref().err().unwrap_or(&AmqpError::SessionOver));
        result
    }

    /// Handles an event of the connection. An error ends the session.
    fn on_event(&self, event: Option<Event>, in_flight: &mut InFlight) -> Result<(), AmqpError> {
        match event {
            Some(Event::Error(error)) => return Err(error.into()),
            Some(Event::ConnectionBlocked(reason)) => {
                // The checks of the program say it.
                tracing::debug!(reason, "RabbitMQ takes no messages for now");
                in_flight.block();
                self.announce(Some(reason.into()));
            }
            Some(Event::ConnectionUnblocked) => {
                let for_ms = u64::try_from(in_flight.unblock().as_millis()).unwrap_or(u64::MAX);
                tracing::debug!(for_ms, "RabbitMQ takes messages again");
                self.announce(None);
            }
            Some(_) => {}
            None => return Err(AmqpError::SessionOver),
        }
        Ok(())
    }

    fn is_blocked(&self) -> bool {
        self.state.blocked.borrow().is_some()
    }

    fn announce(&self, reason: Option<Arc<str>>) {
        self.state.blocked.send_if_modified(|known| {
            let is_new = *known != reason;
            *known = reason;
            is_new
        });
    }
}

async fn open(dialer: &Dialer) -> Result<Link, AmqpError> {
    let link = dialer.open("publisher").await?;
    let options = ConfirmSelectOptions::default();
    within(dialer.settings.request_timeout, link.channel.confirm_select(options)).await?;
    Ok(link)
}

/// Sends one message and waits for its confirm. Only one task may poll these futures, so that the
/// messages are sent in the order in which they are numbered.
async fn send(
    channel: Channel,
    id: Uuid,
    to: Address,
    payload: Bytes,
    headers: FieldTable,
) -> ConfirmResult {
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
