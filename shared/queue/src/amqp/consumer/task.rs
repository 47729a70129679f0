//! The task that owns the sessions of one consumer.
//!
//! Failures: a client does not notice every way in which a session can die or the
//! server can lose a consumer. So a consumer that receives nothing for a heartbeat's time asks, on
//! its own channel, how many messages are ready. No answer ends the session, and so does finding
//! ready messages twice in a row while there is a free permit. A delivery that stays unsettled for
//! 30 minutes makes RabbitMQ close the channel, which ends the session like any other loss; the
//! message is delivered again. A queue that was deleted cancels the consumer; the next session
//! declares it again.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use lapin::{
    Channel,
    message::Delivery as LapinDelivery,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::{FieldTable, ShortString},
};
use push_model::causes::with_causes;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::delivery::{UnsettledDelivery, published_at};
use crate::{
    Lane, QueueError,
    amqp::{
        connection::{Dialer, Link, ReconnectBackoff},
        error::{AmqpError, log_lost, within},
        topology::ready_count,
    },
    counts::HeadAge,
};

/// A channel that consumes.
pub(super) struct Session {
    link: Link,
    stream: lapin::Consumer,
    tag: ShortString,
}

/// The owner of the sessions of one consumer.
pub(super) struct ConsumeTask {
    pub(super) dialer: Dialer,
    pub(super) backoff: ReconnectBackoff,
    pub(super) lane: Lane,
    pub(super) prefetch: u16,
    /// Told when each message that comes was published.
    pub(super) age: Arc<HeadAge>,
    /// One for each unsettled delivery of all sessions.
    pub(super) permits: Arc<Semaphore>,
    pub(super) out: mpsc::Sender<Result<UnsettledDelivery, QueueError>>,
    pub(super) has_session: watch::Sender<bool>,
    pub(super) stop: CancellationToken,
}

impl ConsumeTask {
    pub(super) async fn open(&self) -> Result<Session, AmqpError> {
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

    /// Consumes until stopped.
    pub(super) async fn run(mut self, first: Session) {
        let mut session = first;
        let lane = self.lane.name();
        loop {
            let since = Instant::now();
            self.has_session.send_replace(true);
            let ended = self.run_session(&mut session).await;
            self.has_session.send_replace(false);
            let Err(error) = ended else {
                return self.shut_down(session).await;
            };
            log_lost!(
                error,
                lane,
                runbook = "messages-wait-too-long",
                error = with_causes(&error),
                "a consumer's session was lost"
            );
            drop(session);
            self.backoff.session_lasted(since.elapsed());
            match self.reopen().await {
                Some(new) => session = new,
                None => return,
            }
        }
    }

    /// Passes deliveries on until the session ends. `Ok` when stopping.
    async fn run_session(&self, session: &mut Session) -> Result<(), AmqpError> {
        loop {
            let permit = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                permit = self.permits.clone().acquire_owned() => permit,
            };
            // The semaphore is never closed.
            let Ok(permit) = permit else { return Ok(()) };
            let delivery = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                delivery = self.next_delivery(session) => delivery?,
            };
            if let Some(published_at) = published_at(&delivery.properties) {
                self.age.taken(published_at);
            }
            let (channel, bound) =
                (session.link.channel.clone(), self.dialer.settings.request_timeout);
            let delivery = UnsettledDelivery::new(delivery, channel, permit, bound);
            // This never waits: the channel has a slot for each permit.
            if self.out.send(Ok(delivery)).await.is_err() {
                return Ok(());
            }
        }
    }

    /// The next delivery, or an error if the session turns out to be dead.
    async fn next_delivery(&self, session: &mut Session) -> Result<LapinDelivery, AmqpError> {
        let settings = &self.dialer.settings;
        let queue = self.dialer.names.lane(self.lane);
        let mut was_ready = false;
        loop {
            match timeout(settings.heartbeat, session.stream.next()).await {
                Ok(delivery) => return Ok(delivery.ok_or(AmqpError::Cancelled)??),
                Err(_) => {
                    let (channel, bound) = (&session.link.channel, settings.request_timeout);
                    let is_ready = ready_count(channel, &queue, bound).await? > 0;
                    if was_ready && is_ready {
                        return Err(AmqpError::Starved);
                    }
                    was_ready = is_ready;
                }
            }
        }
    }

    /// Opens a new session, trying until it succeeds; `None` when stopping, or when no retry can
    /// help.
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
                    tracing::debug!(lane, "the consumer is back");
                    return Some(session);
                }
                Err(error @ AmqpError::Mismatch { .. }) => {
                    // It fails only if the consumer was dropped.
                    let _ = self.out.send(Err(error.into())).await;
                    return None;
                }
                Err(error) => {
                    // A worker whose lane has no consumer says so by itself.
                    let error = with_causes(&error);
                    tracing::debug!(lane, error, "cannot open a session to consume yet");
                }
            }
        }
    }

    /// Cancels the consumer on the server and gives back the messages that were not passed on.
    /// Deliveries that were passed on keep the channel open until they are settled.
    async fn shut_down(self, session: Session) {
        let Session { link, mut stream, tag } = session;
        let bound = self.dialer.settings.request_timeout;
        let give_back = async {
            cancel(&link.channel, tag, bound).await?;
            while let Some(delivery) = stream.next().await {
                give_back(delivery?).await?;
            }
            Ok(())
        };
        let result: Result<(), AmqpError> =
            timeout(bound, give_back).await.unwrap_or(Err(AmqpError::Late(bound)));
        if let Err(error) = result {
            // The server takes the messages back when the connection ends, only later.
            tracing::debug!(error = with_causes(&error), "a consumer did not end in order");
        }
    }
}

async fn cancel(channel: &Channel, tag: ShortString, bound: Duration) -> Result<(), AmqpError> {
    within(bound, channel.basic_cancel(tag, BasicCancelOptions::default())).await
}

async fn give_back(delivery: LapinDelivery) -> Result<(), AmqpError> {
    delivery.nack(BasicNackOptions { multiple: false, requeue: true }).await?;
    Ok(())
}
