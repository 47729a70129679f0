//! Browsing: reading the messages of a queue, and perhaps deleting some.
//!
//! AMQP has no way to read a message without consuming it. So a browse consumes the messages that
//! were there when it began, leaves those that it does not delete unsettled so that they are not
//! delivered twice, and gives them back at its end; if it breaks off, RabbitMQ takes them back.
//! Until then they are invisible to others, so a browse waits for a moment at its end until they
//! are back, and the next one of the same program sees them all. A quorum queue counts a message
//! that is given back as delivered.
//!
//! It consumes a set of messages at a time, by a consumer with exactly that prefetch, which is
//! cancelled when the set is complete: with `basic.get` each message would cost a round trip, and
//! one consumer for all of them would need unbounded memory.
//!
//! A quorum queue puts returned messages behind those that returned earlier, and before all others.
//! So the order stays as it was if the browse goes through the whole queue and gives the sets back
//! in their order.

use std::{collections::VecDeque, time::Duration};

use futures::StreamExt;
use lapin::{
    Channel,
    message::Delivery as LapinDelivery,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
    },
    types::{DeliveryTag, FieldTable},
};
use tokio::time::{sleep, timeout};

use crate::amqp::{
    connection::ControlConnection,
    error::{AmqpError, within},
};

/// Messages to consume together; they are in memory besides those that the caller keeps. More than
/// 32 that return together come back in any order (seen with RabbitMQ 3.10).
const SET: u16 = 32;
/// Sets to give back before waiting for them. RabbitMQ keeps the order of returns while fewer than
/// 32 of its own requests to the queue are open.
const SETS_AT_ONCE: usize = 8;
/// A message that does not come within this time was consumed by another program.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between checks for the returned messages, and the number of checks.
const CHECK_PAUSE: Duration = Duration::from_millis(10);
const CHECKS: usize = 100;

/// One browse of a queue.
pub(super) struct Browse<'a> {
    control: &'a ControlConnection,
    channel: Channel,
    queue: String,
    /// Messages that were there at the beginning and are not consumed yet.
    unread: u64,
    /// Messages of this set that the caller has not got yet.
    fetched: VecDeque<LapinDelivery>,
    /// Messages of this set that are not settled.
    unsettled: Vec<DeliveryTag>,
    /// The last unsettled message of each earlier set.
    kept: Vec<DeliveryTag>,
    /// The messages of the queue when all are back.
    returning: u64,
}

impl<'a> Browse<'a> {
    /// Begins to browse the messages that a queue has now.
    pub(super) async fn begin(
        control: &'a ControlConnection,
        queue: String,
    ) -> Result<Self, AmqpError> {
        let channel = control.channel().await?;
        let ready = control.ready_count(&channel, &queue).await?;
        Ok(Self {
            control,
            channel,
            queue,
            unread: ready,
            fetched: VecDeque::new(),
            unsettled: Vec::new(),
            kept: Vec::new(),
            returning: ready,
        })
    }

    /// The next message. It stays unsettled until it is deleted or the browse is finished.
    pub(super) async fn next(&mut self) -> Result<Option<LapinDelivery>, AmqpError> {
        if self.fetched.is_empty() && self.unread > 0 {
            self.next_set().await?;
        }
        Ok(self.fetched.pop_front())
    }

    async fn next_set(&mut self) -> Result<(), AmqpError> {
        self.kept.extend(self.unsettled.pop());
        self.unsettled.clear();
        let size = u16::try_from(self.unread).unwrap_or(SET).min(SET);
        let fetched = self.fetch(size).await;
        self.unsettled.extend(self.fetched.iter().map(|message| message.delivery_tag));
        fetched?;
        let missing = u64::from(size).saturating_sub(self.fetched.len() as u64);
        // Another program consumed the missing messages, and may have consumed all others.
        self.unread = if missing > 0 { 0 } else { self.unread - u64::from(size) };
        self.returning = self.returning.saturating_sub(missing);
        Ok(())
    }

    /// Consumes the first messages of the queue: `size`, or as many as come in time.
    async fn fetch(&mut self, size: u16) -> Result<(), AmqpError> {
        let bound = self.control.dialer().settings.request_timeout;
        within(bound, self.channel.basic_qos(size, BasicQosOptions { global: false })).await?;
        let consume = self.channel.basic_consume(
            self.queue.as_str().into(),
            // RabbitMQ returns messages in the order of their consumer tags, so tags sort by set.
            // Operators see the tag in RabbitMQ's list of consumers, so it keeps its name.
            format!("page-{:08}", self.kept.len()).into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let mut messages = within(bound, consume).await?;
        while self.fetched.len() < usize::from(size) {
            match timeout(MESSAGE_TIMEOUT, messages.next()).await {
                Ok(message) => self.fetched.push_back(message.ok_or(AmqpError::Cancelled)??),
                Err(_) => break,
            }
        }
        let cancel = self.channel.basic_cancel(messages.tag(), BasicCancelOptions::default());
        within(bound, cancel).await?;
        // Messages that were on their way when the consumer was cancelled; then the stream ends.
        while let Some(message) = messages.next().await {
            self.fetched.push_back(message?);
        }
        Ok(())
    }

    pub(super) async fn delete(&mut self, message: DeliveryTag) -> Result<(), AmqpError> {
        let ack = self.channel.basic_ack(message, BasicAckOptions::default());
        within(self.control.dialer().settings.request_timeout, ack).await?;
        self.unsettled.retain(|tag| *tag != message);
        self.returning = self.returning.saturating_sub(1);
        Ok(())
    }

    /// Gives the messages back that were not deleted.
    pub(super) async fn finish(mut self) -> Result<(), AmqpError> {
        self.kept.extend(self.unsettled.pop());
        let mut not_returned = self.kept.len() as u64 * u64::from(SET);
        for sets in self.kept.chunks(SETS_AT_ONCE) {
            for last in sets {
                let all = BasicNackOptions { multiple: true, requeue: true };
                let nack = self.channel.basic_nack(*last, all);
                within(self.control.dialer().settings.request_timeout, nack).await?;
            }
            not_returned = not_returned.saturating_sub(sets.len() as u64 * u64::from(SET));
            self.wait_until_ready(self.returning.saturating_sub(not_returned)).await?;
        }
        self.control.close_channel(&self.channel).await
    }

    /// Waits until the queue has this many ready messages, because RabbitMQ confirms no return.
    /// Gives up after a while without an error, because another program may have consumed them.
    async fn wait_until_ready(&self, count: u64) -> Result<(), AmqpError> {
        for _ in 0..CHECKS {
            if self.control.ready_count(&self.channel, &self.queue).await? >= count {
                break;
            }
            sleep(CHECK_PAUSE).await;
        }
        Ok(())
    }
}
