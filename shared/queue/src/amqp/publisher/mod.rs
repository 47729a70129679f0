//! Publishing with confirms: the handle.
//!
//! A publish whose confirm is outstanding is awaited for as long as its session lives. Giving up
//! earlier would not take the message back, and publishing it again would store it twice: a broker
//! that takes no messages for a while stores all of them afterwards. The wait is bounded because a
//! session in which a confirm is overdue is ended ([`task`]), and every publish in flight with it.
//!
//! Failures: each publish needs one of `publishes_in_flight` permits, so a server that takes no messages (a
//! memory alarm, a queue without its majority) costs no more memory than that many messages. A publish that
//! its caller drops keeps its permit until the confirm comes or the session ends. While the server announces
//! that it takes no messages, every publish that has no permit yet, or was not handed to the connection, is
//! refused immediately with the reason; while there is no connection every publish is answered immediately.
//!
//! - `request`: a publish on its way to the task
//! - `task`: the task that owns the publishing channel
//! - `in_flight`: matching confirms and returned messages to publishes
//! - `alarm_probe`: whether the server takes messages, for `/readyz` and `pushctl doctor`

mod alarm_probe;
mod in_flight;
mod request;
mod task;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use lapin::types::FieldTable;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

pub(super) use self::alarm_probe::AlarmProbe;
use self::{
    request::{PendingConfirm, PublishRequest},
    task::{PublishTask, SessionSignals},
};
use super::{connection::Dialer, error::AmqpError, topology::Address};
use crate::{QueueError, until_blocked};

/// The handle that publishes.
#[derive(Debug)]
pub(super) struct Publisher {
    requests: mpsc::Sender<PublishRequest>,
    permits: Arc<Semaphore>,
    blocked: watch::Receiver<Option<Arc<str>>>,
    /// Why there is no connection; `None` while there is one.
    lost: watch::Receiver<Option<AmqpError>>,
    /// Ends the pause before the connection is opened again.
    reopen: Arc<Notify>,
    publish_timeout: Duration,
}

impl Publisher {
    /// Opens the connection. The future returned is the task that publishes until `closing`.
    pub(super) async fn start(
        dialer: Dialer,
        closing: CancellationToken,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), AmqpError> {
        let most = dialer.settings.publishes_in_flight.clamp(1, Semaphore::MAX_PERMITS);
        let publish_timeout = dialer.settings.publish_timeout;
        // As large as the number of permits, so that a publish with a permit never waits here.
        let (requests, receiver) = mpsc::channel(most);
        let (announce, blocked) = watch::channel(None);
        let (announce_lost, lost) = watch::channel(None);
        let reopen = Arc::new(Notify::new());
        let state =
            SessionSignals { blocked: announce, lost: announce_lost, reopen: Arc::clone(&reopen) };
        let task = PublishTask::start(dialer, receiver, state, closing).await?;
        let permits = Arc::new(Semaphore::new(most));
        Ok((Self { requests, permits, blocked, lost, reopen, publish_timeout }, task))
    }

    /// Why the server takes no messages; `None` while it takes them.
    pub(super) fn blocked(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.blocked.clone()
    }

    /// Checks that the publishing task runs and that the server takes messages. The task ends when
    /// the queue is closed; should it end by a bug, the readiness probe must report that.
    pub(super) fn check_usable(&self) -> Result<(), QueueError> {
        if self.requests.is_closed() {
            return Err(QueueError::Closed);
        }
        match &*self.blocked.borrow() {
            Some(reason) => Err(QueueError::Blocked(Arc::clone(reason))),
            None => Ok(()),
        }
    }

    /// Checks that there is a connection to publish on. If not, it is opened immediately, because
    /// the server has just answered.
    pub(super) fn check_connected(&self) -> Result<(), QueueError> {
        match &*self.lost.borrow() {
            Some(error) => {
                self.reopen.notify_one();
                Err(error.clone().into())
            }
            None => Ok(()),
        }
    }

    /// Returns true if there is a connection to publish on.
    pub(super) fn is_connected(&self) -> bool {
        !self.requests.is_closed() && self.lost.borrow().is_none()
    }

    /// Publishes, and waits until the message is confirmed or its session has ended.
    pub(super) async fn publish(
        &self,
        to: Address,
        payload: Bytes,
        headers: FieldTable,
    ) -> Result<(), QueueError> {
        let (pending, outcome) = PendingConfirm::new(self.acquire().await?);
        let request = PublishRequest { to, payload, headers, pending };
        self.requests.send(request).await.map_err(|_| QueueError::Closed)?;
        outcome.await.map_err(|_| QueueError::Closed)?
    }

    /// Publishes for an operator's command, which must end soon: gives up when the confirm is late,
    /// or when the server announces that it takes no messages. The message may be stored then.
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
            () = sleep(self.publish_timeout) => Err(AmqpError::Late(self.publish_timeout).into()),
        }
    }

    /// Waits for a permit, unless the server takes no messages.
    async fn acquire(&self) -> Result<OwnedSemaphorePermit, QueueError> {
        let mut blocked = self.blocked.clone();
        if let Some(reason) = &*blocked.borrow() {
            return Err(QueueError::Blocked(Arc::clone(reason)));
        }
        tokio::select! {
            biased;
            permit = Arc::clone(&self.permits).acquire_owned() => {
                permit.map_err(|_| QueueError::Closed)
            }
            reason = until_blocked(&mut blocked) => Err(QueueError::Blocked(reason)),
        }
    }
}
