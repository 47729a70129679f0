//! Listing, replaying and dropping dead letters, each by [browsing](browse) their queue.
//!
//! Every command browses the whole queue, even if it is about few letters, because only that leaves
//! the order as it was. (A browse that breaks off may change the order, and letters are not listed
//! oldest first any more.) It keeps no more payloads in memory than it returns.
//!
//! - `browse`: reading the messages of a queue without removing them
//! - `codec`: how a dead letter is written into an AMQP message, and read

mod browse;
mod codec;

use std::collections::HashSet;

use lapin::message::Delivery as LapinDelivery;

use self::browse::Browse;
pub(super) use self::codec::{dropped_from, headers};
use super::{connection::ControlConnection, publisher::Publisher};
use crate::{DeadLetter, QueueError};

/// An action on a dead letter.
#[derive(Clone, Copy)]
pub(super) enum Action<'a> {
    /// Publishes it to its lane and deletes it.
    Replay(&'a Publisher),
    /// Deletes it.
    Drop,
}

/// Hands the letters to `visit`, the oldest first, until it returns false.
pub(super) async fn visit(
    control: &ControlConnection,
    visit: &mut (dyn FnMut(DeadLetter) -> bool + Send),
) -> Result<(), QueueError> {
    let mut browse = begin(control).await?;
    let result = visit_all(&mut browse, visit).await;
    finish(browse, result).await
}

async fn visit_all(
    browse: &mut Browse<'_>,
    visit: &mut (dyn FnMut(DeadLetter) -> bool + Send),
) -> Result<(), QueueError> {
    let mut goes_on = true;
    while let Some(message) = browse.next().await? {
        goes_on = goes_on && visit(read(message));
    }
    Ok(())
}

/// Acts on the letters with these ids, or on all. Returns how many were moved or deleted.
pub(super) async fn act(
    control: &ControlConnection,
    only: Option<&[String]>,
    action: Action<'_>,
) -> Result<u64, QueueError> {
    let wanted: Option<HashSet<&str>> = only.map(|ids| ids.iter().map(String::as_str).collect());
    let mut browse = begin(control).await?;
    let result = act_on(control, &mut browse, wanted.as_ref(), action).await;
    finish(browse, result).await
}

async fn act_on(
    control: &ControlConnection,
    browse: &mut Browse<'_>,
    wanted: Option<&HashSet<&str>>,
    action: Action<'_>,
) -> Result<u64, QueueError> {
    let mut done = 0;
    while let Some(message) = browse.next().await? {
        let tag = message.delivery_tag;
        let letter = read(message);
        let is_wanted = wanted.is_none_or(|ids| ids.contains(letter.id.as_str()));
        if is_wanted && carry_out(control, letter, action).await? {
            browse.delete(tag).await?;
            done += 1;
        }
    }
    Ok(done)
}

/// Replays the letter if that is the action. Returns whether the letter is to be deleted now.
async fn carry_out(
    control: &ControlConnection,
    letter: DeadLetter,
    action: Action<'_>,
) -> Result<bool, QueueError> {
    match (action, letter.lane) {
        (Action::Drop, _) => Ok(true),
        (Action::Replay(_), None) => Ok(false),
        (Action::Replay(publisher), Some(lane)) => {
            let to = control.dialer().names.lane_address(lane);
            publisher.publish_briefly(to, letter.payload, Default::default()).await?;
            Ok(true)
        }
    }
}

async fn begin(control: &ControlConnection) -> Result<Browse<'_>, QueueError> {
    Ok(Browse::begin(control, control.dialer().names.dead_letters()).await?)
}

/// Finishes the browse also after a failure, so that its messages go back to the queue now and not
/// only when the connection ends.
async fn finish<T>(browse: Browse<'_>, result: Result<T, QueueError>) -> Result<T, QueueError> {
    let finished = browse.finish().await;
    let value = result?;
    finished?;
    Ok(value)
}

fn read(message: LapinDelivery) -> DeadLetter {
    codec::read(&message.properties, message.data)
}
