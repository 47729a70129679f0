//! A delivery, how often it was delivered, and how it is settled.
//!
//! It is settled on the channel that delivered it, which it keeps open, and on no other: a delivery
//! tag is only valid on its channel. Once that channel is gone settling fails, because the server
//! has already taken the message back. Settling has a timeout like every wait: a session that does
//! not even accept an ack is dead, and the permit must still be released.
//!
//! A quorum queue counts the returns of a message and reports them in a header. Up to RabbitMQ 4.2
//! `x-delivery-count` has all of them. From 4.3 on it leaves out those that RabbitMQ does not count
//! as failures (a `basic.nack`, a consumer that was too slow), and `x-acquired-count` has all.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use lapin::{
    Acker, BasicProperties, Channel,
    message::Delivery as LapinDelivery,
    options::{BasicAckOptions, BasicNackOptions},
    types::AMQPValue,
};
use push_model::time::UnixMillis;
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use crate::{
    Delivery, QueueError, Settle,
    amqp::error::{AmqpError, within},
};

const REQUEUE: BasicNackOptions = BasicNackOptions { multiple: false, requeue: true };

/// Headers with the number of times that a message was returned to its queue.
const RETURNS: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// A delivery that is not settled.
#[derive(Debug)]
pub(super) struct UnsettledDelivery {
    payload: Bytes,
    deliveries: u32,
    settle: AmqpSettle,
}

/// Gives the message back when dropped, unless it was settled.
#[derive(Debug)]
struct AmqpSettle {
    acker: Acker,
    channel: Channel,
    _permit: OwnedSemaphorePermit,
    bound: Duration,
}

impl UnsettledDelivery {
    /// `bound` is the longest that settling may take.
    pub(super) fn new(
        delivery: LapinDelivery,
        channel: Channel,
        permit: OwnedSemaphorePermit,
        bound: Duration,
    ) -> Self {
        let deliveries = deliveries(&delivery);
        let LapinDelivery { data, acker, .. } = delivery;
        let settle = AmqpSettle { acker, channel, _permit: permit, bound };
        Self { payload: data.into(), deliveries, settle }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.settle.is_ours()
    }

    pub(super) fn into_delivery(self) -> Delivery {
        Delivery::new(self.payload, self.deliveries, Box::new(self.settle))
    }
}

/// Returns how often a message was delivered, including this time.
fn deliveries(delivery: &LapinDelivery) -> u32 {
    // Set on a message that was delivered before, even if no header has the number.
    let at_least = u32::from(delivery.redelivered);
    returns(&delivery.properties).max(at_least).saturating_add(1)
}

/// When a message was published, by the clock of its publisher: its id is a UUIDv7.
pub(super) fn published_at(properties: &BasicProperties) -> Option<UnixMillis> {
    let id = Uuid::try_parse(properties.message_id().as_ref()?.as_str()).ok()?;
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    Some(UnixMillis(seconds.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000))))
}

/// Returns how often a message was returned to its queue, as far as its headers say.
fn returns(properties: &BasicProperties) -> u32 {
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
    /// Waits until a disposition is sent. From the client library, `false` means that it was not.
    async fn sent(
        &self,
        disposition: impl Future<Output = Result<bool, lapin::Error>>,
    ) -> Result<(), QueueError> {
        match within(self.bound, disposition).await? {
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

    fn is_ours(&self) -> bool {
        self.acker.usable() && self.channel.status().connected()
    }
}

impl Drop for AmqpSettle {
    fn drop(&mut self) {
        // The first poll hands the nack to the connection; waiting on would only show when it was
        // written. The client library ignores it if the delivery was settled or its session is
        // over.
        let _ = self.acker.nack(REQUEUE).now_or_never();
    }
}

#[cfg(test)]
mod tests {
    use lapin::types::FieldTable;

    use super::*;

    fn delivered(redelivered: bool, headers: &[(&str, AMQPValue)]) -> LapinDelivery {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), value.clone());
        }
        let mut delivered = LapinDelivery::mock(1, "".into(), "".into(), redelivered, Vec::new());
        delivered.properties = BasicProperties::default().with_headers(table);
        delivered
    }

    #[test]
    fn a_delivery_is_counted_from_one_by_the_header_with_the_larger_count() {
        let (failed, all) = ("x-delivery-count", "x-acquired-count");
        let (three, seven) = (AMQPValue::LongLongInt(3), AMQPValue::ShortShortInt(7));
        assert_eq!(deliveries(&delivered(false, &[])), 1);
        assert_eq!(deliveries(&delivered(true, &[])), 2, "how often is not known");
        assert_eq!(deliveries(&delivered(true, &[(failed, three.clone())])), 4);
        assert_eq!(deliveries(&delivered(true, &[(failed, three), (all, seven)])), 8);
    }

    #[test]
    fn a_count_out_of_range_becomes_the_nearest_valid_one() {
        let count = |value| deliveries(&delivered(false, &[("x-delivery-count", value)]));
        assert_eq!(count(AMQPValue::LongLongInt(-5)), 1);
        assert_eq!(count(AMQPValue::LongLongInt(i64::MAX)), u32::MAX);
        assert_eq!(count(AMQPValue::LongString("many".into())), 1);
    }
}
