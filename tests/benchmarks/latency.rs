//! One connection: the time of one push after the other, over the time of one confirmed publish
//! after the other.

use std::{num::NonZeroUsize, time::Duration};

use anyhow::ensure;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use push_service::runtime;
use push_tests::namespace;
use tokio::time::Instant;

use crate::{
    crowd, ingest,
    load::{self, Producer, Rounds, ordinary_push, quantile},
    report::{Figure, Row, Target},
    world::World,
};

/// AMQP's number for "write it to disk".
const PERSISTENT: u8 = 2;
/// What the envelope adds to a push: ids, times and the frame of the batch, in bytes.
const ENVELOPE: usize = 150;

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let service = world.empty().await?;
    let (producer, amqp) = (service.producer(), world.amqp().await?);
    let (turns, count) = (world.sizes.rounds * 2, world.sizes.sequential);
    // On a thread of their own: on several, one would notice an answer and another take it.
    let rows = tokio::task::spawn_blocking(move || {
        runtime::start(NonZeroUsize::MIN)?.block_on(in_turn(&producer, &amqp, turns, count))
    });
    let rows = rows.await??;
    ingest::forget_jobs(&world.amqp().await?, &service.stack).await?;
    Ok(rows)
}

async fn in_turn(
    producer: &Producer,
    amqp: &str,
    turns: usize,
    count: usize,
) -> anyhow::Result<Vec<Row>> {
    let mut pushes = producer.connect().await?;
    let raw = Raw::open(amqp).await?;
    let payload = vec![b'x'; job_size()];
    // Warm: the app's record, both queues, the broker's log.
    round_of_pushes(&mut pushes, 20).await?;
    raw.round(&payload, 20).await?;
    let (mut rounds, mut tails) = (Rounds::default(), Rounds::default());
    for _ in 0..turns {
        let mut ours = round_of_pushes(&mut pushes, count).await?;
        let mut theirs = raw.round(&payload, count).await?;
        rounds.add(quantile(&mut ours, 0.5), quantile(&mut theirs, 0.5));
        tails.add(quantile(&mut ours, 0.99), quantile(&mut theirs, 0.99));
    }
    raw.close().await?;
    let row = |what: &str, rounds: &Rounds, target| {
        let (figure, ceiling, ratio) = rounds.medians();
        Row {
            what: format!("one connection, {what}"),
            figure: Figure::new(figure, "ms"),
            ceiling: Some(Figure::new(ceiling, "ms")),
            ratio: Some(ratio),
            target,
            how: format!(
                "{turns} x {count} pushes one after the other. Ceiling, in turn: a persistent, \
                 mandatory publish of {} bytes to a quorum queue and its confirm, by lapin; both \
                 from one thread",
                payload.len()
            ),
        }
    };
    Ok(vec![row("p50", &rounds, Target::RatioAtMost(1.5)), row("p99", &tails, Target::None)])
}

async fn round_of_pushes(
    pushes: &mut load::Connection,
    count: usize,
) -> anyhow::Result<Vec<Duration>> {
    // As for the raw publish, what is sent was written before, and what is answered is read after.
    let request = pushes.push_request(&ordinary_push(&crowd::client_id(1)));
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        let answer = pushes.exchange(&request).await?;
        times.push(started.elapsed());
        load::message_id(&answer)?;
    }
    Ok(times)
}

/// The median time of a confirmed publish of so many pushes at once, with nothing beside it.
pub(crate) async fn confirm(amqp: &str, pushes: usize) -> anyhow::Result<Duration> {
    const TIMES: usize = 100;
    let raw = Raw::open(amqp).await?;
    let payload = vec![b'x'; job_size() * pushes];
    raw.round(&payload, TIMES).await?;
    let mut times = raw.round(&payload, TIMES).await?;
    raw.close().await?;
    Ok(Duration::from_secs_f64(quantile(&mut times, 0.5) / 1e3))
}

/// About as many bytes as a push has in the queue.
fn job_size() -> usize {
    ordinary_push(&crowd::client_id(1)).to_string().len() + ENVELOPE
}

/// A quorum queue of our own and a channel with confirms.
struct Raw {
    connection: Connection,
    channel: Channel,
    queue: String,
}

impl Raw {
    async fn open(amqp: &str) -> anyhow::Result<Self> {
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

    async fn round(&self, payload: &[u8], count: usize) -> anyhow::Result<Vec<Duration>> {
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

    async fn close(self) -> anyhow::Result<()> {
        self.channel.queue_delete(self.queue.into(), QueueDeleteOptions::default()).await?;
        Ok(self.connection.close(200, "done".into()).await?)
    }
}
