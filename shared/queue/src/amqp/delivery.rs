//! A delivery in the hands of its consumer, how often it was handed out, and how it is settled.
//!
//! It is settled on the channel that delivered it, which it keeps open, and on no other: delivery
//! tags mean nothing elsewhere. Once that channel is gone settling is an error, because the server
//! has already taken the message back. Settling has a bound like every wait: a session that does
//! not even take an ack is as good as gone, and the place must not go with it.
//!
//! A quorum queue counts the returns of a message and says so from the first on. Up to RabbitMQ 4.2
//! `x-delivery-count` has all of them. From 4.3 on it leaves out those that are no failure to
//! RabbitMQ (a `basic.nack`, a consumer that was too slow), and `x-acquired-count` has all.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use lapin::{
    Acker, BasicProperties, Channel,
    message::Delivery as Delivered,
    options::{BasicAckOptions, BasicNackOptions},
    types::AMQPValue,
};
use tokio::sync::OwnedSemaphorePermit;

use super::error::{AmqpError, within};
use crate::{Delivery, QueueError, Settle};

const REQUEUE: BasicNackOptions = BasicNackOptions { multiple: false, requeue: true };

/// Headers of a message that came back: how often it did.
const RETURNS: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// An undecided delivery.
#[derive(Debug)]
pub(super) struct InHand {
    payload: Bytes,
    deliveries: u32,
    settle: AmqpSettle,
}

/// Gives the message back when dropped, unless it was settled.
#[derive(Debug)]
struct AmqpSettle {
    acker: Acker,
    channel: Channel,
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
        let deliveries = deliveries(&delivered);
        let Delivered { data, acker, .. } = delivered;
        let settle = AmqpSettle { acker, channel, _place: place, bound };
        Self { payload: data.into(), deliveries, settle }
    }

    pub(super) fn is_held(&self) -> bool {
        self.settle.is_held()
    }

    pub(super) fn into_delivery(self) -> Delivery {
        Delivery::new(self.payload, self.deliveries, Box::new(self.settle))
    }
}

/// How often a message was handed out, this time included.
fn deliveries(delivered: &Delivered) -> u32 {
    // It was delivered before, and the queue does not say how often.
    let at_least = u32::from(delivered.redelivered);
    returns(&delivered.properties).max(at_least).saturating_add(1)
}

/// How often a message was delivered before and came back, as far as its queue says.
pub(super) fn returns(properties: &BasicProperties) -> u32 {
    let Some(headers) = properties.headers() else { return 0 };
    let count = |name: &&str| headers.inner().get(*name).and_then(whole_number);
    let most = RETURNS.iter().filter_map(count).max().unwrap_or_default();
    u32::try_from(most.max(0)).unwrap_or(u32::MAX)
}

fn whole_number(value: &AMQPValue) -> Option<i64> {
    match value {
        AMQPValue::LongLongInt(number) => Some(*number),
        AMQPValue::LongInt(number) => Some((*number).into()),
        AMQPValue::LongUInt(number) => Some((*number).into()),
        AMQPValue::ShortInt(number) => Some((*number).into()),
        AMQPValue::ShortUInt(number) => Some((*number).into()),
        AMQPValue::ShortShortInt(number) => Some((*number).into()),
        AMQPValue::ShortShortUInt(number) => Some((*number).into()),
        _ => None,
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

    fn is_held(&self) -> bool {
        self.acker.usable() && self.channel.status().connected()
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

#[cfg(test)]
mod tests {
    use lapin::types::FieldTable;

    use super::*;

    fn delivered(redelivered: bool, headers: &[(&str, AMQPValue)]) -> Delivered {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), value.clone());
        }
        let mut delivered = Delivered::mock(1, "".into(), "".into(), redelivered, Vec::new());
        delivered.properties = BasicProperties::default().with_headers(table);
        delivered
    }

    #[test]
    fn a_delivery_is_counted_from_one_by_whichever_header_knows_more() {
        let (failed, all) = ("x-delivery-count", "x-acquired-count");
        let (three, seven) = (AMQPValue::LongLongInt(3), AMQPValue::ShortShortInt(7));
        assert_eq!(deliveries(&delivered(false, &[])), 1);
        assert_eq!(deliveries(&delivered(true, &[])), 2, "how often is not known");
        assert_eq!(deliveries(&delivered(true, &[(failed, three.clone())])), 4);
        assert_eq!(deliveries(&delivered(true, &[(failed, three), (all, seven)])), 8);
    }

    #[test]
    fn a_count_that_is_none_is_taken_for_the_nearest_that_is_one() {
        let count = |value| deliveries(&delivered(false, &[("x-delivery-count", value)]));
        assert_eq!(count(AMQPValue::LongLongInt(-5)), 1);
        assert_eq!(count(AMQPValue::LongLongInt(i64::MAX)), u32::MAX);
        assert_eq!(count(AMQPValue::LongString("many".into())), 1);
    }
}
