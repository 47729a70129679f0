//! A pass: looking into a queue, and perhaps settling some of what is there.
//!
//! AMQP cannot look into a queue without taking from it. So a pass takes the messages that were
//! there when it began, keeps those it does not settle undecided so that they do not come twice,
//! and gives them back at its end; if it dies, RabbitMQ gives them back. For that time nobody else
//! sees them, so a pass waits for a moment until they are back, and the next one of the same
//! program sees them all. A quorum queue counts what is given back as a delivery.
//!
//! It takes a page at a time, by a consumer that is asked for exactly that many and cancelled
//! when they are here: one by one (`basic.get`) each would cost a round trip, and a consumer for
//! all of them would have no bound in memory.
//!
//! A quorum queue puts what returns behind what returned earlier and before everything else. So
//! the order stays as it was if the pages are given back in their order and the pass took all
//! that had returned before: always if it went through the whole queue, and also if no pass took
//! more than this one.

use std::{collections::VecDeque, time::Duration};

use futures::StreamExt;
use lapin::{
    Channel,
    message::Delivery as Delivered,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
    },
    types::{DeliveryTag, FieldTable},
};
use tokio::time::{sleep, timeout};

use super::{
    control::Control,
    error::{AmqpError, within},
};

/// How many messages are taken at once, and so are in memory besides those that are looked for.
/// More than 32 that return together come back in any order (seen with RabbitMQ 3.10).
const PAGE: u16 = 32;
/// How many pages are given back before they must be back. RabbitMQ hands returns on as they are
/// while fewer than 32 of its own requests to the queue are open, and else in any order.
const PAGES_AT_ONCE: usize = 8;
/// What does not come within this time has been taken by somebody else.
const QUIET: Duration = Duration::from_secs(1);
/// How long, and how often at most, a pass looks whether what it gave back is back.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
const LOOKS: usize = 100;

/// One pass over a queue.
pub(super) struct Pass<'a> {
    control: &'a Control,
    channel: Channel,
    queue: String,
    /// Messages that were there at the beginning, are to be looked at, and were not taken yet.
    left: u64,
    /// Messages of this page that were not handed out yet.
    page: VecDeque<Delivered>,
    /// Messages of this page that are not settled.
    undecided: Vec<DeliveryTag>,
    /// The last unsettled message of each page before.
    kept: Vec<DeliveryTag>,
    /// Messages that must be back when everything is back.
    returning: u64,
}

impl<'a> Pass<'a> {
    /// Begins a pass over the oldest messages of a queue, at most `most`.
    pub(super) async fn begin(
        control: &'a Control,
        queue: String,
        most: u64,
    ) -> Result<Self, AmqpError> {
        let channel = control.channel().await?;
        let ready = control.ready(&channel, &queue).await?;
        Ok(Self {
            control,
            channel,
            queue,
            left: ready.min(most),
            page: VecDeque::new(),
            undecided: Vec::new(),
            kept: Vec::new(),
            returning: ready,
        })
    }

    /// The next message. It stays undecided until it is settled or the pass is finished.
    pub(super) async fn take(&mut self) -> Result<Option<Delivered>, AmqpError> {
        if self.page.is_empty() && self.left > 0 {
            self.turn_page().await?;
        }
        Ok(self.page.pop_front())
    }

    async fn turn_page(&mut self) -> Result<(), AmqpError> {
        self.kept.extend(self.undecided.pop());
        self.undecided.clear();
        let size = u16::try_from(self.left).unwrap_or(PAGE).min(PAGE);
        let fetched = self.fetch(size).await;
        self.undecided.extend(self.page.iter().map(|message| message.delivery_tag));
        fetched?;
        let missing = u64::from(size).saturating_sub(self.page.len() as u64);
        // Others have taken what is missing, and with it perhaps everything.
        self.left = if missing > 0 { 0 } else { self.left - u64::from(size) };
        self.returning = self.returning.saturating_sub(missing);
        Ok(())
    }

    /// Takes the first messages of the queue, as many as come.
    async fn fetch(&mut self, size: u16) -> Result<(), AmqpError> {
        let bound = self.control.dialer().settings.request_timeout;
        within(bound, self.channel.basic_qos(size, BasicQosOptions { global: false })).await?;
        let consume = self.channel.basic_consume(
            self.queue.as_str().into(),
            // In the order of the pages, which is the order in which RabbitMQ gives back.
            format!("page-{:08}", self.kept.len()).into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let mut messages = within(bound, consume).await?;
        while self.page.len() < usize::from(size) {
            match timeout(QUIET, messages.next()).await {
                Ok(message) => self.page.push_back(message.ok_or(AmqpError::Cancelled)??),
                Err(_) => break,
            }
        }
        let cancel = self.channel.basic_cancel(messages.tag(), BasicCancelOptions::default());
        within(bound, cancel).await?;
        // What was on its way when it was cancelled; then the stream ends.
        while let Some(message) = messages.next().await {
            self.page.push_back(message?);
        }
        Ok(())
    }

    /// Deletes the message that was taken last.
    pub(super) async fn settle(&mut self, message: DeliveryTag) -> Result<(), AmqpError> {
        let ack = self.channel.basic_ack(message, BasicAckOptions::default());
        within(self.control.dialer().settings.request_timeout, ack).await?;
        self.undecided.retain(|tag| *tag != message);
        self.returning = self.returning.saturating_sub(1);
        Ok(())
    }

    /// Gives back what was not settled.
    pub(super) async fn finish(mut self) -> Result<(), AmqpError> {
        self.kept.extend(self.undecided.pop());
        let mut away = self.kept.len() as u64 * u64::from(PAGE);
        for pages in self.kept.chunks(PAGES_AT_ONCE) {
            for last in pages {
                let all = BasicNackOptions { multiple: true, requeue: true };
                let nack = self.channel.basic_nack(*last, all);
                within(self.control.dialer().settings.request_timeout, nack).await?;
            }
            away = away.saturating_sub(pages.len() as u64 * u64::from(PAGE));
            self.wait_until_back(self.returning.saturating_sub(away)).await?;
        }
        self.control.finish(&self.channel).await
    }

    /// Returning is not confirmed by anything, so the queue is looked at. Somebody else may have
    /// taken the messages by then, so this gives up after a while and that is no failure.
    async fn wait_until_back(&self, ready: u64) -> Result<(), AmqpError> {
        for _ in 0..LOOKS {
            if self.control.ready(&self.channel, &self.queue).await? >= ready {
                break;
            }
            sleep(LOOK_PAUSE).await;
        }
        Ok(())
    }
}
