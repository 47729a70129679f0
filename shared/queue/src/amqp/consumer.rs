//! Consuming a lane, through lost connections.
//!
//! One task for each consumer owns its sessions and hands deliveries over through a bounded
//! channel, so that a reconnection goes on while nobody waits in `next()`, and cancelling `next()`
//! loses nothing.
//!
//! Prefetch holds in two places. `basic.qos`, set on every session before it consumes, bounds what
//! the server sends, and with that the client library's own buffer, which has no other bound. And
//! a place (a semaphore permit) for each delivery that is in somebody's hands bounds what is handed
//! out over all sessions: those of a lost session are still being worked on when the next one
//! begins.
//!
//! Work that gets stuck: no client notices every way in which a session can die or be forgotten by
//! its server. So one that hears nothing for a heartbeat's time asks, on its own channel, how many
//! messages wait: no answer ends the session, and so does the answer "some" twice in a row while
//! there is room for more. A delivery that stays undecided for 30 minutes makes RabbitMQ close the
//! channel; that is a lost session like any other, and the message is delivered again. A queue
//! that was deleted cancels the consumer; the next session declares it again.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::StreamExt;
use lapin::{
    Channel,
    message::Delivery as Delivered,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::{FieldTable, ShortString},
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    backoff::Backoff,
    control::ready,
    delivery::InHand,
    error::{AmqpError, chain, within},
    link::{Dialer, Link},
};
use crate::{Consumer, Delivery, Lane, QueueError};

/// The receiving end of a consumer; dropping it stops the consumer.
pub(super) struct AmqpConsumer {
    deliveries: mpsc::Receiver<Result<InHand, QueueError>>,
    open: watch::Receiver<bool>,
    _stop: DropGuard,
}

impl AmqpConsumer {
    /// Opens the first session, and starts the task that keeps consuming until the consumer is
    /// dropped or `closing`.
    pub(super) async fn start(
        dialer: Dialer,
        lane: Lane,
        prefetch: u16,
        closing: &CancellationToken,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), AmqpError> {
        // To AMQP, zero means without limit.
        let prefetch = prefetch.max(1);
        let stop = closing.child_token();
        let (out, deliveries) = mpsc::channel(prefetch.into());
        let (has_session, open) = watch::channel(true);
        let task = Task {
            backoff: Backoff::new(&dialer.settings),
            places: Arc::new(Semaphore::new(prefetch.into())),
            dialer,
            lane,
            prefetch,
            out,
            has_session,
            stop: stop.clone(),
        };
        let first = task.open().await?;
        Ok((Self { deliveries, open, _stop: stop.drop_guard() }, task.run(first)))
    }
}

#[async_trait]
impl Consumer for AmqpConsumer {
    async fn next(&mut self) -> Result<Delivery, QueueError> {
        loop {
            let in_hand = self.deliveries.recv().await.ok_or(QueueError::Closed)??;
            // One whose session ended while it waited here will be delivered again.
            if in_hand.is_held() {
                return Ok(in_hand.into_delivery());
            }
        }
    }

    fn open(&self) -> watch::Receiver<bool> {
        self.open.clone()
    }
}

/// A channel that consumes.
struct Session {
    link: Link,
    stream: lapin::Consumer,
    tag: ShortString,
}

/// Owner of the sessions of one consumer.
struct Task {
    dialer: Dialer,
    backoff: Backoff,
    lane: Lane,
    prefetch: u16,
    places: Arc<Semaphore>,
    out: mpsc::Sender<Result<InHand, QueueError>>,
    has_session: watch::Sender<bool>,
    stop: CancellationToken,
}

impl Task {
    async fn open(&self) -> Result<Session, AmqpError> {
        let bound = self.dialer.settings.request_timeout;
        let link = self.dialer.open(&format!("consumer of {}", self.lane.name())).await?;
        let qos = link.channel.basic_qos(self.prefetch, BasicQosOptions { global: false });
        within(bound, qos).await?;
        let queue = self.dialer.names.lane(self.lane);
        let consume = link.channel.basic_consume(
            queue.into(),
            ShortString::default(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let stream = within(bound, consume).await?;
        let tag = stream.tag();
        Ok(Session { link, stream, tag })
    }

    async fn run(mut self, first: Session) {
        let mut session = first;
        let lane = self.lane.name();
        loop {
            let since = Instant::now();
            self.has_session.send_replace(true);
            let served = self.serve(&mut session).await;
            self.has_session.send_replace(false);
            let Err(error) = served else {
                return self.wind_down(session).await;
            };
            tracing::warn!(lane, error = chain(&error), "a consumer's session was lost");
            drop(session);
            self.backoff.session_lasted(since.elapsed());
            match self.reopen().await {
                Some(new) => session = new,
                None => return,
            }
        }
    }

    /// Hands out deliveries until the session ends. `Ok` when stopping.
    async fn serve(&self, session: &mut Session) -> Result<(), AmqpError> {
        loop {
            let place = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                place = self.places.clone().acquire_owned() => place,
            };
            // The semaphore is never closed.
            let Ok(place) = place else { return Ok(()) };
            let delivered = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                delivered = self.delivered(session) => delivered?,
            };
            let bound = self.dialer.settings.request_timeout;
            let in_hand = InHand::new(delivered, session.link.channel.clone(), place, bound);
            // There is room: the channel has as much as there are places.
            if self.out.send(Ok(in_hand)).await.is_err() {
                return Ok(());
            }
        }
    }

    /// The next delivery of a session that is alive.
    async fn delivered(&self, session: &mut Session) -> Result<Delivered, AmqpError> {
        let settings = &self.dialer.settings;
        let queue = self.dialer.names.lane(self.lane);
        let mut some_waited = false;
        loop {
            match timeout(settings.heartbeat, session.stream.next()).await {
                Ok(delivered) => return Ok(delivered.ok_or(AmqpError::Cancelled)??),
                Err(_) => {
                    let bound = settings.request_timeout;
                    let some_wait = ready(&session.link.channel, &queue, bound).await? > 0;
                    if some_waited && some_wait {
                        return Err(AmqpError::Starved);
                    }
                    some_waited = some_wait;
                }
            }
        }
    }

    /// Opens a new session, however often it takes; `None` when stopping, or when it is pointless.
    async fn reopen(&mut self) -> Option<Session> {
        let stop = self.stop.clone();
        let lane = self.lane.name();
        let mut stop = pin!(stop.cancelled());
        loop {
            let pause = self.backoff.pause(rand::random());
            let attempt = async {
                sleep(pause).await;
                self.open().await
            };
            let opened = tokio::select! {
                biased;
                () = &mut stop => return None,
                opened = attempt => opened,
            };
            match opened {
                Ok(session) => {
                    tracing::info!(lane, "the consumer is back");
                    return Some(session);
                }
                Err(error @ AmqpError::Mismatch { .. }) => {
                    // Nobody to tell if the consumer is gone.
                    let _ = self.out.send(Err(error.into())).await;
                    return None;
                }
                Err(error) => {
                    tracing::warn!(lane, error = chain(&error), "cannot open a session to consume");
                }
            }
        }
    }

    /// Stops the server from sending and gives back what nobody took. What is in somebody's hands
    /// keeps the channel open until it is settled.
    async fn wind_down(self, session: Session) {
        let Session { link, mut stream, tag } = session;
        let bound = self.dialer.settings.request_timeout;
        let give_back = async {
            cancel(&link.channel, tag, bound).await?;
            while let Some(delivered) = stream.next().await {
                give_back(delivered?).await?;
            }
            Ok(())
        };
        let result: Result<(), AmqpError> =
            timeout(bound, give_back).await.unwrap_or(Err(AmqpError::Late(bound)));
        if let Err(error) = result {
            // The end of the connection gives them back all the same, only later.
            tracing::debug!(error = chain(&error), "a consumer did not end in order");
        }
    }
}

async fn cancel(channel: &Channel, tag: ShortString, bound: Duration) -> Result<(), AmqpError> {
    within(bound, channel.basic_cancel(tag, BasicCancelOptions::default())).await
}

async fn give_back(delivered: Delivered) -> Result<(), AmqpError> {
    delivered.nack(BasicNackOptions { multiple: false, requeue: true }).await?;
    Ok(())
}
