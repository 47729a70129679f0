//! What is done with dead letters: [passes](super::pass) over their queue.
//!
//! Every one goes through the whole queue, even if it is about few letters, because only a whole
//! pass leaves the order as it was. (One that dies does not; then "oldest first" is a thing of the
//! past.) It keeps no more payloads than it returns.

use std::collections::HashSet;

use lapin::message::Delivery as Delivered;

use super::{control::Control, letter, pass::Pass, publisher::Publisher};
use crate::{DeadLetter, QueueError};

/// What is done with a letter.
#[derive(Clone, Copy)]
pub(super) enum Action<'a> {
    /// Publishes it to its lane and deletes it.
    Replay(&'a Publisher),
    /// Deletes it.
    Drop,
}

/// The oldest letters.
pub(super) async fn list(control: &Control, limit: usize) -> Result<Vec<DeadLetter>, QueueError> {
    let mut pass = begin(control).await?;
    let result = read_on(control, &mut pass, limit).await;
    finish(pass, result).await
}

async fn read_on(
    control: &Control,
    pass: &mut Pass<'_>,
    limit: usize,
) -> Result<Vec<DeadLetter>, QueueError> {
    let mut letters = Vec::new();
    while let Some(message) = pass.take().await? {
        if letters.len() < limit {
            letters.push(read(control, message));
        }
    }
    Ok(letters)
}

/// Acts on the letters with these ids, or on all. Returns on how many.
pub(super) async fn act(
    control: &Control,
    only: Option<&[String]>,
    action: Action<'_>,
) -> Result<u64, QueueError> {
    let wanted: Option<HashSet<&str>> = only.map(|ids| ids.iter().map(String::as_str).collect());
    let mut pass = begin(control).await?;
    let result = act_on(control, &mut pass, wanted.as_ref(), action).await;
    finish(pass, result).await
}

async fn act_on(
    control: &Control,
    pass: &mut Pass<'_>,
    wanted: Option<&HashSet<&str>>,
    action: Action<'_>,
) -> Result<u64, QueueError> {
    let mut done = 0;
    while let Some(message) = pass.take().await? {
        let tag = message.delivery_tag;
        let letter = read(control, message);
        let is_wanted = wanted.is_none_or(|ids| ids.contains(letter.id.as_str()));
        if is_wanted && carry_out(control, letter, action).await? {
            pass.settle(tag).await?;
            done += 1;
        }
    }
    Ok(done)
}

/// Whether the letter can be deleted now.
async fn carry_out(
    control: &Control,
    letter: DeadLetter,
    action: Action<'_>,
) -> Result<bool, QueueError> {
    match (action, letter.lane) {
        (Action::Drop, _) => Ok(true),
        (Action::Replay(_), None) => Ok(false),
        (Action::Replay(publisher), Some(lane)) => {
            let to = control.dialer().names.now(lane);
            publisher.publish_briefly(to, letter.payload, Default::default()).await?;
            Ok(true)
        }
    }
}

async fn begin(control: &Control) -> Result<Pass<'_>, QueueError> {
    Ok(Pass::begin(control, control.dialer().names.dead(), u64::MAX).await?)
}

/// Also after a failure what was kept goes back, now instead of with the connection.
async fn finish<T>(pass: Pass<'_>, result: Result<T, QueueError>) -> Result<T, QueueError> {
    let finished = pass.finish().await;
    let value = result?;
    finished?;
    Ok(value)
}

fn read(control: &Control, message: Delivered) -> DeadLetter {
    letter::read(&control.dialer().names, &message.properties, message.data)
}
