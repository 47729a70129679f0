//! Publishing with confirms: the handle.
//!
//! A publish whose confirm is outstanding is awaited for as long as its session lives. Giving up
//! earlier would not take the message back, and publishing it again beside the first one makes
//! copies: a broker that takes nothing for a while stores all of them afterwards. What bounds the
//! wait is that a session ends in which a confirm is overdue ([`publishing`](super::publishing)),
//! and every publish in flight with it.
//!
//! Work that gets stuck: each publish needs one of `publishes_in_flight` places, so a server that
//! takes nothing (a memory alarm, a queue without its majority) costs no more memory than so many
//! messages. A publish that its caller drops keeps its place until the confirm comes or the
//! session ends. While the server announces that it takes nothing, what has no place yet, or was
//! not handed to the connection, is refused at once with the reason; while there is no connection
//! every publish is answered at once.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use lapin::types::FieldTable;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{error::AmqpError, in_flight::Waiting, link::Dialer, publishing::Task};
use crate::{QueueError, topology::Address, until_blocked};

/// The handle that publishes.
#[derive(Debug)]
pub(super) struct Publisher {
    requests: mpsc::Sender<Request>,
    places: Arc<Semaphore>,
    blocked: watch::Receiver<Option<Arc<str>>>,
    patience: Duration,
}

/// One message on its way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) to: Address,
    pub(super) payload: Bytes,
    pub(super) headers: FieldTable,
    pub(super) waiting: Waiting,
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
        let (announce, blocked) = watch::channel(None);
        let task = Task::start(dialer, queue, announce, closing).await?;
        Ok((Self { requests, places: Arc::new(Semaphore::new(places)), blocked, patience }, task))
    }

    /// Why the server takes nothing, while it takes nothing.
    pub(super) fn blocked(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.blocked.clone()
    }

    /// Whether something can be published: the task that publishes is there, and the server takes
    /// messages. The task ends when the queue is closed, and should it fail, whoever asks how the
    /// queue is must hear of it.
    pub(super) fn is_usable(&self) -> Result<(), QueueError> {
        if self.requests.is_closed() {
            return Err(QueueError::Closed);
        }
        match &*self.blocked.borrow() {
            Some(reason) => Err(QueueError::Blocked(Arc::clone(reason))),
            None => Ok(()),
        }
    }

    /// Publishes, and waits until the message is confirmed or its session has ended.
    pub(super) async fn publish(
        &self,
        to: Address,
        payload: Bytes,
        headers: FieldTable,
    ) -> Result<(), QueueError> {
        let (waiting, outcome) = Waiting::new(self.place().await?);
        let request = Request { to, payload, headers, waiting };
        self.requests.send(request).await.map_err(|_| QueueError::Closed)?;
        outcome.await.map_err(|_| QueueError::Closed)?
    }

    /// Publishes for an operator, who is told soon: gives up when the confirm is late, or when
    /// the server announces meanwhile that it takes nothing. That does not take the message back.
    pub(super) async fn publish_briefly(
        &self,
        to: Address,
        payload: Bytes,
        headers: FieldTable,
    ) -> Result<(), QueueError> {
        let mut blocked = self.blocked.clone();
        tokio::select! {
            biased;
            outcome = self.publish(to, payload, headers) => outcome,
            reason = until_blocked(&mut blocked) => Err(AmqpError::Blocked(reason).into()),
            () = sleep(self.patience) => Err(AmqpError::Late(self.patience).into()),
        }
    }

    /// A place in flight, waiting for one unless the server takes nothing.
    async fn place(&self) -> Result<OwnedSemaphorePermit, QueueError> {
        let mut blocked = self.blocked.clone();
        if let Some(reason) = &*blocked.borrow() {
            return Err(QueueError::Blocked(Arc::clone(reason)));
        }
        tokio::select! {
            biased;
            place = Arc::clone(&self.places).acquire_owned() => {
                place.map_err(|_| QueueError::Closed)
            }
            reason = until_blocked(&mut blocked) => Err(QueueError::Blocked(reason)),
        }
    }
}
