//! A delivery in somebody's hands, and how it is settled.
//!
//! It is settled on the channel that delivered it, which it keeps open, and on no other: delivery
//! tags mean nothing elsewhere. Once that channel is gone settling is an error, because the server
//! has already taken the message back. Settling has a bound like every wait: a session that does
//! not even take an ack is as good as gone, and the place must not go with it.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use lapin::{
    Acker, Channel,
    message::Delivery as Delivered,
    options::{BasicAckOptions, BasicNackOptions},
};
use tokio::sync::OwnedSemaphorePermit;

use super::error::{AmqpError, within};
use crate::queue::{Delivery, QueueError, Settle};

const REQUEUE: BasicNackOptions = BasicNackOptions { multiple: false, requeue: true };

/// A delivery that nobody has decided about.
#[derive(Debug)]
pub(super) struct InHand {
    payload: Bytes,
    redelivered: bool,
    settle: AmqpSettle,
}

/// Gives the message back when dropped, unless it was settled.
#[derive(Debug)]
struct AmqpSettle {
    acker: Acker,
    _channel: Channel,
    _place: OwnedSemaphorePermit,
    bound: Duration,
}

impl InHand {
    /// `bound` is the longest that settling may take.
    pub(super) fn new(
        delivered: Delivered,
        channel: Channel,
        place: OwnedSemaphorePermit,
        bound: Duration,
    ) -> Self {
        let Delivered { data, redelivered, acker, .. } = delivered;
        let settle = AmqpSettle { acker, _channel: channel, _place: place, bound };
        Self { payload: data.into(), redelivered, settle }
    }

    pub(super) fn can_be_settled(&self) -> bool {
        self.settle.acker.usable()
    }

    pub(super) fn into_delivery(self) -> Delivery {
        Delivery::new(self.payload, self.redelivered, Box::new(self.settle))
    }
}

impl AmqpSettle {
    /// Waits for a settlement to be sent; to the client library, `false` is that it could not.
    async fn sent(
        &self,
        settlement: impl Future<Output = Result<bool, lapin::Error>>,
    ) -> Result<(), QueueError> {
        match within(self.bound, settlement).await? {
            true => Ok(()),
            false => Err(AmqpError::SessionOver.into()),
        }
    }
}

#[async_trait]
impl Settle for AmqpSettle {
    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        self.sent(self.acker.ack(BasicAckOptions::default())).await
    }

    async fn requeue(self: Box<Self>) -> Result<(), QueueError> {
        self.sent(self.acker.nack(REQUEUE)).await
    }
}

impl Drop for AmqpSettle {
    fn drop(&mut self) {
        // The first poll hands the nack to the connection, and waiting for more would only tell
        // when it was written. One that was settled, or whose session is over, is left alone by
        // the client library.
        let _ = self.acker.nack(REQUEUE).now_or_never();
    }
}
