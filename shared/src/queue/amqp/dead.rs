//! Passes over the dead-letter queue.
//!
//! AMQP cannot look into a queue without taking from it. So a pass takes the letters one by one,
//! settles those that it is about, keeps the others undecided so that they do not come twice, and
//! gives these back at its end; if it dies, RabbitMQ gives them back. For that time a second pass
//! does not see them, so a pass waits for a moment until they are back, and the next one of the
//! same program sees them all.
//!
//! Every pass goes through the whole queue as it was when it began, even if it is about few
//! letters: a quorum queue puts what returns behind what returned earlier, so only a whole pass
//! leaves the order as it was. (One that dies does not; then "oldest first" is a thing of the
//! past.) It keeps no more payloads than it returns.

use std::{collections::HashSet, time::Duration};

use lapin::{
    Channel,
    options::{BasicAckOptions, BasicGetOptions, BasicNackOptions},
    types::DeliveryTag,
};

use super::{
    control::Control,
    error::{AmqpError, within},
    letter,
    publisher::Publisher,
};
use crate::queue::{DeadLetter, QueueError};

/// How long, and how often at most, a pass looks whether what it gave back is back.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
const LOOKS: usize = 100;

/// What a pass does with a letter.
#[derive(Clone, Copy)]
pub(super) enum Action<'a> {
    /// Publishes it to its lane and deletes it.
    Replay(&'a Publisher),
    /// Deletes it.
    Drop,
}

/// One pass over the queue.
struct Pass<'a> {
    control: &'a Control,
    channel: Channel,
    queue: String,
    /// Letters that were there at the beginning and have not been taken.
    left: u64,
    /// Letters that were taken and not settled.
    undecided: u64,
    /// The last one that was taken and kept undecided.
    kept: Option<DeliveryTag>,
}

/// The oldest letters.
pub(super) async fn list(control: &Control, limit: usize) -> Result<Vec<DeadLetter>, QueueError> {
    let mut pass = Pass::begin(control).await?;
    let mut letters = Vec::new();
    while let Some((tag, letter)) = pass.take().await? {
        pass.kept = Some(tag);
        if letters.len() < limit {
            letters.push(letter);
        }
    }
    pass.finish().await?;
    Ok(letters)
}

/// Acts on the letters with these ids, or on all. Returns on how many.
pub(super) async fn act(
    control: &Control,
    only: Option<&[String]>,
    action: Action<'_>,
) -> Result<u64, QueueError> {
    let wanted: Option<HashSet<&str>> = only.map(|ids| ids.iter().map(String::as_str).collect());
    let mut pass = Pass::begin(control).await?;
    let result = pass.act_on(wanted.as_ref(), action).await;
    // Also after a failure: what was kept goes back now instead of with the connection.
    let finished = pass.finish().await;
    let done = result?;
    finished?;
    Ok(done)
}

impl<'a> Pass<'a> {
    async fn begin(control: &'a Control) -> Result<Self, AmqpError> {
        let channel = control.channel().await?;
        let queue = control.dialer().names.dead();
        let left = control.ready(&channel, &queue).await?;
        Ok(Self { control, channel, queue, left, undecided: 0, kept: None })
    }

    /// Takes the next letter.
    async fn take(&mut self) -> Result<Option<(DeliveryTag, DeadLetter)>, AmqpError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let dialer = self.control.dialer();
        let get = self.channel.basic_get(self.queue.as_str().into(), BasicGetOptions::default());
        let taken = within(dialer.settings.request_timeout, get).await?;
        self.undecided += u64::from(taken.is_some());
        Ok(taken.map(|message| {
            let delivery = message.delivery;
            let letter = letter::read(&dialer.names, &delivery.properties, delivery.data);
            (delivery.delivery_tag, letter)
        }))
    }

    async fn act_on(
        &mut self,
        wanted: Option<&HashSet<&str>>,
        action: Action<'_>,
    ) -> Result<u64, QueueError> {
        let mut done = 0;
        while let Some((tag, letter)) = self.take().await? {
            // Kept until it is settled, so that a failure gives it back.
            let kept = self.kept.replace(tag);
            let is_wanted = wanted.is_none_or(|ids| ids.contains(letter.id.as_str()));
            if !is_wanted || !self.carry_out(letter, action).await? {
                continue;
            }
            let ack = self.channel.basic_ack(tag, BasicAckOptions::default());
            within(self.control.dialer().settings.request_timeout, ack).await?;
            self.kept = kept;
            self.undecided -= 1;
            done += 1;
        }
        Ok(done)
    }

    /// Whether the letter can be deleted now.
    async fn carry_out(&self, letter: DeadLetter, action: Action<'_>) -> Result<bool, QueueError> {
        match (action, letter.lane) {
            (Action::Drop, _) => Ok(true),
            (Action::Replay(_), None) => Ok(false),
            (Action::Replay(publisher), Some(lane)) => {
                let to = self.control.dialer().names.now(lane);
                publisher.publish(to, letter.payload, Default::default()).await?;
                Ok(true)
            }
        }
    }

    /// Gives back what was kept.
    async fn finish(self) -> Result<(), AmqpError> {
        if let Some(tag) = self.kept {
            let all = BasicNackOptions { multiple: true, requeue: true };
            let nack = self.channel.basic_nack(tag, all);
            within(self.control.dialer().settings.request_timeout, nack).await?;
            self.wait_until_back().await?;
        }
        self.control.finish(&self.channel).await
    }

    /// Returning is not confirmed by anything, so the queue is looked at. Another pass may have
    /// taken the letters by then, so this gives up after a while and that is no failure.
    async fn wait_until_back(&self) -> Result<(), AmqpError> {
        for _ in 0..LOOKS {
            let ready = self.control.ready(&self.channel, &self.queue).await?;
            if ready >= self.left + self.undecided {
                break;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        Ok(())
    }
}
