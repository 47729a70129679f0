//! Looking at what waits in a lane: a [pass](super::pass) over its beginning.
//!
//! Every look is a delivery, and a worker puts aside what was delivered too often. A look must not
//! be what puts a message aside, however often an operator looks while no worker runs. So one that
//! is close to [`MAX_DELIVERIES`] is not given back but replaced by a copy at the end of the lane,
//! which counts from the start: published and confirmed before the original is deleted, so a
//! failure in between makes two of it, which the lanes bear.

use bytes::Bytes;
use lapin::types::FieldTable;

use super::{control::Control, delivery::returns, pass::Pass, publisher::Publisher};
use crate::{Lane, MAX_DELIVERIES, QueueError, SampleSize};

/// Returns after which a message is replaced: if it were given back once more, a worker could be
/// handed it just once before it counts as one that kills its consumers.
const WORN_OUT: u32 = MAX_DELIVERIES - 2;

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
            publisher.publish_briefly(to, payload.clone(), FieldTable::default()).await?;
            pass.settle(tag).await?;
        }
        bytes += payload.len();
        seen.push(payload);
    }
    Ok(seen)
}
