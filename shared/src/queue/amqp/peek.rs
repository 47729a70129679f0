//! Looking at what waits in a lane: a [pass](super::pass) over its beginning.
//!
//! A lane's queue limits how often a message is delivered, and every look is a delivery. A look
//! must not be what puts a message aside, however often somebody looks while no worker runs. So
//! one that is close to the limit is not given back but replaced by a copy at the end of the lane,
//! which counts from the start: published and confirmed before the original is deleted, so a
//! failure in between makes two of it, which the lanes bear.

use bytes::Bytes;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};

use super::{control::Control, pass::Pass, publisher::Publisher};
use crate::queue::{Lane, MAX_DELIVERIES, QueueError, SampleSize};

/// Written by a quorum queue: how often the message was delivered before and came back.
const DELIVERIES: &str = "x-delivery-count";
/// Returns after which a message is replaced: one delivery is left for a worker.
const WORN_OUT: i64 = MAX_DELIVERIES as i64 - 2;

/// The oldest messages of a lane.
pub(super) async fn peek(
    control: &Control,
    publisher: &Publisher,
    lane: Lane,
    size: SampleSize,
) -> Result<Vec<Bytes>, QueueError> {
    let queue = control.dialer().names.lane(lane);
    let mut pass = Pass::begin(control, queue, size.messages as u64).await?;
    let result = look(control, publisher, lane, size, &mut pass).await;
    // Also after a failure: what was taken goes back now instead of with the connection.
    let finished = pass.finish().await;
    let seen = result?;
    finished?;
    Ok(seen)
}

async fn look(
    control: &Control,
    publisher: &Publisher,
    lane: Lane,
    size: SampleSize,
    pass: &mut Pass<'_>,
) -> Result<Vec<Bytes>, QueueError> {
    let (mut seen, mut bytes) = (Vec::new(), 0);
    while bytes < size.bytes {
        let Some(message) = pass.take().await? else { break };
        let (tag, returns) = (message.delivery_tag, returns(&message.properties));
        let payload = Bytes::from(message.data);
        if returns >= WORN_OUT {
            let to = control.dialer().names.now(lane);
            publisher.publish(to, payload.clone(), FieldTable::default()).await?;
            pass.settle(tag).await?;
        }
        bytes += payload.len();
        seen.push(payload);
    }
    Ok(seen)
}

fn returns(properties: &BasicProperties) -> i64 {
    let headers = properties.headers().as_ref();
    match headers.and_then(|headers| headers.inner().get(DELIVERIES)) {
        Some(AMQPValue::LongLongInt(count)) => *count,
        Some(AMQPValue::LongInt(count)) => (*count).into(),
        Some(AMQPValue::LongUInt(count)) => (*count).into(),
        Some(AMQPValue::ShortInt(count)) => (*count).into(),
        Some(AMQPValue::ShortUInt(count)) => (*count).into(),
        Some(AMQPValue::ShortShortInt(count)) => (*count).into(),
        Some(AMQPValue::ShortShortUInt(count)) => (*count).into(),
        _ => 0,
    }
}
