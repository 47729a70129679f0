//! Confirmed publishes by lapin to a quorum queue, one after the other.

use std::time::Duration;

use anyhow::ensure;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use push_tests::namespace;
use tokio::time::Instant;

use crate::{load::pushes::ordinary_push, measure::stats::quantile, setup::population};

/// AMQP's delivery mode for persistent messages.
const PERSISTENT: u8 = 2;
/// The bytes that the envelope adds to a push: ids, times and the frame of the batch.
const ENVELOPE: usize = 150;

/// The median time of a confirmed publish of one envelope with `pushes` pushes, while nothing else
/// runs.
pub(crate) async fn confirm_time(amqp: &str, pushes: usize) -> anyhow::Result<Duration> {
    const TIMES: usize = 100;
    let raw = RawPublisher::connect(amqp).await?;
    let payload = vec![b'x'; job_size() * pushes];
    raw.round(&payload, TIMES).await?;
    let mut times = raw.round(&payload, TIMES).await?;
    raw.close().await?;
    Ok(Duration::from_secs_f64(quantile(&mut times, 0.5) / 1e3))
}

/// About as many bytes as a push takes in the queue.
pub(crate) fn job_size() -> usize {
    ordinary_push(&population::client_id(1)).to_string().len() + ENVELOPE
}

/// A private quorum queue and a channel with publisher confirms.
pub(crate) struct RawPublisher {
    connection: Connection,
    channel: Channel,
    queue: String,
}

impl RawPublisher {
    pub(crate) async fn connect(amqp: &str) -> anyhow::Result<Self> {
        let connection = Connection::connect(amqp, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let queue = namespace();
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.as_str().into(), options, arguments).await?;
        Ok(Self { connection, channel, queue })
    }

    /// Publishes `count` times and returns how long each confirm took.
    pub(crate) async fn round(
        &self,
        payload: &[u8],
        count: usize,
    ) -> anyhow::Result<Vec<Duration>> {
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let started = Instant::now();
            let (exchange, key) = ("".into(), self.queue.as_str().into());
            let publish =
                self.channel.basic_publish(exchange, key, options, payload, properties.clone());
            let confirmation = publish.await?.await?;
            times.push(started.elapsed());
            ensure!(matches!(confirmation, Confirmation::Ack(None)), "{confirmation:?}");
        }
        Ok(times)
    }

    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.channel.queue_delete(self.queue.into(), QueueDeleteOptions::default()).await?;
        Ok(self.connection.close(200, "done".into()).await?)
    }
}
