//! Publishing with confirms.
//!
//! One task owns the publishing channel, because two facts of the client library make sharing it
//! unsound:
//! - A publish takes its number and queues its frames under two different locks. Two tasks that
//!   publish on one channel can be numbered in one order and sent in the other, and then each
//!   gets the other's confirm.
//! - A message that was returned as unroutable is handed over with the confirm that comes *next*,
//!   not with its own, which may follow later and look clean. So no outcome is believed alone:
//!   the task collects every outcome that is there before it answers any. A return is always
//!   received before the confirm of the same message, so if a clean confirm of a returned message
//!   is among them, the confirm that carries the return is as well.
//!
//! After a return the session ends: what was returned is answered as unroutable, everything else
//! in flight is in doubt, and the next session declares the topology again.
//!
//! After a nack it ends as well. None of our queues has a limit that it could have reached, so a
//! nack says that its quorum queue had no leader for a moment. RabbitMQ 3.10 was seen to go on
//! nacking everything on a channel that had met that moment, with the leader long back, for as
//! long as the channel lived; another channel is served at once.
//!
//! Work that gets stuck: a publisher that waits too long gives up, but its place in flight is
//! kept until the confirm comes or the session ends, so a server that takes nothing (a memory
//! alarm, a queue without its majority) costs no more memory than `publishes_in_flight` messages.
//! While there is no connection every publish is answered at once. A publish that stays
//! unconfirmed for several times as long as anybody waited for it, on a connection that the server
//! has not blocked, ends the session: the next one sends afresh.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Confirmation, Event,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::FieldTable,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    backoff::Backoff,
    error::{AmqpError, chain, within},
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

/// Who waits for the confirm, and the place in flight that it takes.
#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Result<(), QueueError>>,
    _place: OwnedSemaphorePermit,
}

impl Waiting {
    fn answer(self, outcome: Result<(), QueueError>) {
        // The receiver is gone if the publisher gave up: nobody is interested any more.
        let _ = self.answer.send(outcome);
    }
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
            let (answer, outcome) = oneshot::channel();
            let waiting = Waiting { answer, _place: place };
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

/// The outcome of one publish, with the id that it was sent under.
type Outcome = (Uuid, Result<Confirmation, lapin::Error>);

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

/// The publishes of one session that wait for their confirms.
#[derive(Debug, Default)]
struct InFlight {
    waiting: HashMap<Uuid, (Instant, Waiting)>,
    returned: HashSet<Uuid>,
}

impl InFlight {
    /// Takes one in, under an id that no other message has: it names the message when it is
    /// returned, and later among the dead letters.
    fn enter(&mut self, waiting: Waiting) -> Uuid {
        let id = Uuid::now_v7();
        self.waiting.insert(id, (Instant::now(), waiting));
        id
    }

    /// When the oldest was sent.
    fn oldest(&self) -> Option<Instant> {
        self.waiting.values().map(|(since, _)| *since).min()
    }

    /// Answers the outcomes that have come together, or says why the session ends.
    fn conclude(&mut self, outcomes: Vec<Outcome>) -> Result<(), AmqpError> {
        let mut confirmed = Vec::with_capacity(outcomes.len());
        let mut end = None;
        for (id, outcome) in outcomes {
            match outcome {
                Ok(Confirmation::Ack(None)) => confirmed.push((id, Ok(()))),
                Ok(Confirmation::Nack(None)) => {
                    confirmed.push((id, Err(QueueError::Refused("it was not stored".to_owned()))));
                    end.get_or_insert(AmqpError::Nacked);
                }
                Ok(Confirmation::Ack(Some(message)) | Confirmation::Nack(Some(message))) => {
                    let returned = message.properties.message_id().as_ref();
                    self.returned.extend(returned.and_then(|id| Uuid::try_parse(id.as_str()).ok()));
                    end.get_or_insert(AmqpError::InDoubt);
                }
                Ok(Confirmation::NotRequested) => {
                    end.get_or_insert(AmqpError::NotConfirming);
                }
                Err(error) => {
                    end.get_or_insert(error.into());
                }
            }
        }
        // With a return among them even a clean confirm is not believed.
        if self.returned.is_empty() && !matches!(end, Some(AmqpError::InDoubt)) {
            for (id, outcome) in confirmed {
                if let Some((_, waiting)) = self.waiting.remove(&id) {
                    waiting.answer(outcome);
                }
            }
        }
        end.map_or(Ok(()), Err)
    }

    /// Answers everything that is left when the session is over.
    fn abandon(self, error: &AmqpError) {
        for (id, (_, waiting)) in self.waiting {
            waiting.answer(Err(if self.returned.contains(&id) {
                QueueError::Unroutable
            } else {
                error.clone().into()
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use lapin::{
        ErrorKind,
        message::{BasicReturnMessage, Delivery},
    };

    use super::*;

    async fn enter(in_flight: &mut InFlight) -> (Uuid, oneshot::Receiver<Result<(), QueueError>>) {
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let (answer, outcome) = oneshot::channel();
        (in_flight.enter(Waiting { answer, _place: place }), outcome)
    }

    #[tokio::test]
    async fn a_clean_confirm_and_a_nack_are_answered_each_as_it_is() {
        let mut in_flight = InFlight::default();
        let (a, of_a) = enter(&mut in_flight).await;
        let (b, of_b) = enter(&mut in_flight).await;
        let outcomes = vec![(b, Ok(Confirmation::Nack(None))), (a, Ok(Confirmation::Ack(None)))];
        let end = in_flight.conclude(outcomes);
        assert!(of_a.await.unwrap().is_ok());
        assert!(matches!(of_b.await.unwrap(), Err(QueueError::Refused(_))));
        assert!(matches!(end, Err(AmqpError::Nacked)), "a channel that nacks is not kept");
    }

    /// What comes back when a message reaches no queue.
    fn returned(id: Uuid) -> Option<BasicReturnMessage> {
        let mut delivery = Delivery::mock(0, "".into(), "queue".into(), false, Vec::new());
        delivery.properties = BasicProperties::default().with_message_id(id.to_string().into());
        Some(BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() })
    }

    #[tokio::test]
    async fn a_return_that_comes_with_another_messages_confirm_counts_for_its_own_message() {
        for clean_one_first in [true, false] {
            let mut in_flight = InFlight::default();
            let (routed, of_routed) = enter(&mut in_flight).await;
            let (lost, of_lost) = enter(&mut in_flight).await;
            let mut outcomes = vec![
                (lost, Ok(Confirmation::Ack(None))),
                (routed, Ok(Confirmation::Ack(returned(lost)))),
            ];
            if !clean_one_first {
                outcomes.reverse();
            }
            let error = in_flight.conclude(outcomes).unwrap_err();
            in_flight.abandon(&error);
            assert!(matches!(of_lost.await.unwrap(), Err(QueueError::Unroutable)));
            assert!(matches!(of_routed.await.unwrap(), Err(QueueError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn a_returned_message_whose_confirm_has_not_come_yet_is_unroutable_all_the_same() {
        let mut in_flight = InFlight::default();
        let (routed, of_routed) = enter(&mut in_flight).await;
        let (_, of_waiting) = enter(&mut in_flight).await;
        let (lost, of_lost) = enter(&mut in_flight).await;
        let outcomes = vec![(routed, Ok(Confirmation::Ack(returned(lost))))];
        let error = in_flight.conclude(outcomes).unwrap_err();
        in_flight.abandon(&error);
        assert!(matches!(of_lost.await.unwrap(), Err(QueueError::Unroutable)));
        for in_doubt in [of_routed, of_waiting] {
            assert!(matches!(in_doubt.await.unwrap(), Err(QueueError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn a_broken_session_answers_everything_in_flight_as_unavailable() {
        let mut in_flight = InFlight::default();
        let (a, of_a) = enter(&mut in_flight).await;
        let (_, of_b) = enter(&mut in_flight).await;
        let failure = ErrorKind::MissingHeartbeatError.into();
        let error = in_flight.conclude(vec![(a, Err(failure))]).unwrap_err();
        in_flight.abandon(&error);
        for outcome in [of_a, of_b] {
            assert!(matches!(outcome.await.unwrap(), Err(QueueError::Unavailable(_))));
        }
    }

    #[tokio::test]
    async fn a_confirm_without_confirm_mode_is_an_error() {
        let mut in_flight = InFlight::default();
        let (a, of_a) = enter(&mut in_flight).await;
        let error = in_flight.conclude(vec![(a, Ok(Confirmation::NotRequested))]).unwrap_err();
        in_flight.abandon(&error);
        assert!(matches!(of_a.await.unwrap(), Err(QueueError::Unavailable(_))));
    }
}
