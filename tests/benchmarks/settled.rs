//! Pushes to one device each, from acceptance to settled: what they cost every program, what the
//! ledger keeps of them, and how long one takes while others are under way.

use std::time::Duration;

use push_mqtt::MqttUrl;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    arrivals::Listener,
    crowd,
    ingest::forget_jobs,
    load::{Rounds, median, ordinary_push, quantile},
    paced::PacedLoad,
    processor::Spent,
    report::{Figure, Row, Target},
    workers::Workers,
    world::{Crowd, World, used_memory},
};

/// Connections of the producers.
const CONNECTIONS: usize = 64;
/// Different pushes that are sent in turn, each to a device of its own.
const DEVICES: usize = 4096;
/// Load before the first round.
const WARM_UP: Duration = Duration::from_secs(1);
/// A moderate load, as a share of what is settled at most.
const MODERATE: f64 = 0.2;

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let crowd = world.big().await?;
    let bodies = pushes(crowd);
    let (mut rows, most) = at_most(world, crowd, &bodies).await?;
    rows.extend(moderate(world, crowd, &bodies, most * MODERATE).await?);
    Ok(rows)
}

/// Pushes to devices that are spread over the whole crowd.
fn pushes(crowd: &Crowd) -> Vec<Value> {
    let devices = DEVICES.min(crowd.size);
    let step = crowd.size / devices;
    (0..devices).map(|number| ordinary_push(&crowd::client_id(number * step))).collect()
}

/// As many pushes as producers can make; gives also how many were settled a second.
async fn at_most(
    world: &World,
    crowd: &Crowd,
    bodies: &[Value],
) -> anyhow::Result<(Vec<Row>, f64)> {
    let amqp = world.amqp().await?;
    let (producer, load) = (crowd.producer(), world.sizes.load);
    let ingest = crowd.stack.ingest().id();
    let mut rounds = Rounds::default();
    let (mut bytes, mut alone) = (Vec::new(), Vec::new());
    let mut costs: [Vec<f64>; 4] = Default::default();
    producer.wrk_each(CONNECTIONS, WARM_UP, bodies).await?;
    forget_jobs(&amqp, &crowd.stack).await?;
    for _ in 0..world.sizes.rounds {
        let spent = Spent::by([ingest]);
        let accepted = producer.wrk_each(CONNECTIONS, load, bodies).await?;
        alone.extend(spent.per(accepted * load.as_secs_f64()).into_iter().flatten());
        forget_jobs(&amqp, &crowd.stack).await?;

        let workers = Workers::start(&crowd.stack, 1).await;
        let worker = workers.ids()[0];
        let memory = used_memory(&crowd.redis).await?;
        let spent = Spent::by([ingest, world.rabbitmq().await?, worker, crowd.redis.id()]);
        let started = Instant::now();
        let rate = producer.wrk_each(CONNECTIONS, load, bodies).await?;
        let (pushes, end) = workers.until_sent(rate * load.as_secs_f64()).await?;
        rounds.add(pushes / (end - started).as_secs_f64(), accepted);
        bytes.push((used_memory(&crowd.redis).await?.saturating_sub(memory)) as f64 / pushes);
        for (costs, cost) in costs.iter_mut().zip(spent.per(pushes).into_iter().flatten()) {
            costs.push(cost);
        }
        workers.stop().await?;
    }
    let (figure, ceiling, ratio) = rounds.medians();
    let mut rows = vec![Row {
        what: "small pushes, settled end to end".to_owned(),
        figure: Figure::new(figure, "pushes/s"),
        ceiling: Some(Figure::new(ceiling, "pushes/s")),
        ratio: Some(ratio),
        target: Target::RatioAtLeast(0.75),
        how: format!(
            "wrk, {CONNECTIONS} connections, pushes to one of {} devices that are discarded, {} x \
             {load:?}, until the worker has settled the last. Ceiling, in turn: what ingest accepts \
             without a worker",
            bodies.len(),
            world.sizes.rounds,
        ),
    }];
    if !alone.is_empty() {
        let [ingest, rabbitmq, worker, redis] = costs.map(median);
        let row = |program: &str, figure: f64, beside: f64, target, how: &str| Row {
            what: format!("small pushes, processor time of {program}"),
            figure: Figure::new(figure, "us/push"),
            ceiling: Some(Figure::new(beside, "us/push")),
            ratio: Some(figure / beside),
            target,
            how: how.to_owned(),
        };
        let how = "user and system, in the same run. Beside it: that of ingest";
        rows.extend([
            row("worker", worker, ingest, Target::RatioAtMost(0.7), how),
            row("Redis", redis, ingest, Target::RatioAtMost(0.5), how),
            row("RabbitMQ", rabbitmq, ingest, Target::None, how),
        ]);
        let how = "user and system, in the same run. Beside it: its own without a worker";
        rows.push(row("ingest", ingest, median(alone), Target::None, how));
    }
    rows.push(Row {
        what: "small pushes, ledger of a finished one".to_owned(),
        figure: Figure::new(median(bytes), "bytes/push"),
        ceiling: None,
        ratio: None,
        target: Target::AtMost(48.0),
        how: "what Redis allocated more after the run, by the pushes of it".to_owned(),
    });
    Ok((rows, figure))
}

/// What a push takes to its device while others are settled at this rate.
async fn moderate(
    world: &World,
    crowd: &Crowd,
    bodies: &[Value],
    rate: f64,
) -> anyhow::Result<Vec<Row>> {
    let broker: MqttUrl = world.mqtt().await?.parse()?;
    let (producer, count) = (crowd.producer(), world.sizes.isolated);
    let workers = Workers::start(&crowd.stack, 1).await;
    let mut listener = Listener::open(crowd, &broker, "moderate").await?;
    let (mut middles, mut tails) = (Rounds::default(), Rounds::default());
    let mut rates = Vec::new();
    for _ in 0..world.sizes.rounds {
        let mut alone = listener.arrivals(count).await?;
        let others = PacedLoad::start(&producer, rate, bodies).await?;
        let times = listener.arrivals(count).await;
        rates.push(others.stop().await?);
        let mut times = times?;
        middles.add(quantile(&mut times, 0.5), quantile(&mut alone, 0.5));
        tails.add(quantile(&mut times, 0.99), quantile(&mut alone, 0.99));
    }
    workers.stop().await?;
    let reached = median(rates);
    let row = |what: &str, rounds: &Rounds| {
        let (figure, ceiling, ratio) = rounds.medians();
        Row {
            what: format!("one-device push under moderate load, {what}"),
            figure: Figure::new(figure, "ms"),
            ceiling: Some(Figure::new(ceiling, "ms")),
            ratio: Some(ratio),
            target: Target::None,
            how: format!(
                "{} x {count} pushes, from the POST to the arrival at an MQTT device, while \
                 {reached:.0} others a second are settled, {:.0} % of the most. Ceiling, in turn: \
                 the same, alone",
                world.sizes.rounds,
                100.0 * MODERATE,
            ),
        }
    };
    Ok(vec![row("p50", &middles), row("p99", &tails)])
}
