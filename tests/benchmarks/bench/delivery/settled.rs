//! Pushes to one device each, from acceptance until they are closed in the ledger: their rate, the
//! processor time of every program, the bytes that the ledger keeps, and how long one takes under
//! moderate load.

use std::time::Duration;

use push_mqtt::MqttUrl;
use serde_json::Value;
use tokio::time::Instant;

use super::arrivals::Listener;
use crate::{
    load::{paced::PacedLoad, pushes::ordinary_push},
    measure::{
        cpu_time::CpuMeter,
        memory::used_memory,
        stats::{Rounds, median, quantile},
    },
    report::{Figure, Row, Target},
    setup::{Environment, LoadedApp, Workers, environment::purge_jobs, population},
};

/// Connections of the producers.
const CONNECTIONS: usize = 64;
/// Different pushes that are sent in turn, each to a device of its own.
const DEVICES: usize = 4096;
/// Load before the first round.
const WARM_UP: Duration = Duration::from_secs(1);
/// The moderate load, as a share of the highest rate.
const MODERATE: f64 = 0.2;

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let loaded = env.big_app().await?;
    let bodies = pushes(loaded);
    let (mut rows, highest) = full_load(env, loaded, &bodies).await?;
    rows.extend(moderate_load(env, loaded, &bodies, highest * MODERATE).await?);
    Ok(rows)
}

/// Pushes to devices that are spread over the whole app.
fn pushes(loaded: &LoadedApp) -> Vec<Value> {
    let devices = DEVICES.min(loaded.size);
    let step = loaded.size / devices;
    (0..devices).map(|number| ordinary_push(&population::client_id(number * step))).collect()
}

/// As many pushes as the producers can send; returns also how many were delivered a second.
async fn full_load(
    env: &Environment,
    loaded: &LoadedApp,
    bodies: &[Value],
) -> anyhow::Result<(Vec<Row>, f64)> {
    let amqp = env.amqp_url().await?;
    let (producer, load) = (loaded.producer(), env.sizes.load);
    let ingest = loaded.stack.ingest().id();
    let mut rounds = Rounds::default();
    let (mut bytes, mut alone) = (Vec::new(), Vec::new());
    let mut costs: [Vec<f64>; 4] = Default::default();
    producer.wrk_each(CONNECTIONS, WARM_UP, bodies).await?;
    purge_jobs(&amqp, &loaded.stack).await?;
    for _ in 0..env.sizes.rounds {
        let cpu = CpuMeter::start([ingest]);
        let accepted = producer.wrk_each(CONNECTIONS, load, bodies).await?;
        alone.extend(cpu.per_request(accepted * load.as_secs_f64()).into_iter().flatten());
        purge_jobs(&amqp, &loaded.stack).await?;

        let workers = Workers::start(&loaded.stack, 1).await;
        let worker = workers.ids()[0];
        let memory = used_memory(&loaded.redis).await?;
        let cpu = CpuMeter::start([ingest, env.rabbitmq_pid().await?, worker, loaded.redis.id()]);
        let started = Instant::now();
        let rate = producer.wrk_each(CONNECTIONS, load, bodies).await?;
        let (pushes, end) = workers.wait_until_sent(rate * load.as_secs_f64()).await?;
        rounds.add(pushes / (end - started).as_secs_f64(), accepted);
        bytes.push((used_memory(&loaded.redis).await?.saturating_sub(memory)) as f64 / pushes);
        for (costs, cost) in costs.iter_mut().zip(cpu.per_request(pushes).into_iter().flatten()) {
            costs.push(cost);
        }
        workers.stop().await?;
    }
    let highest = rounds.medians().0;
    let mut rows = vec![Row {
        what: "small pushes, settled end to end".to_owned(),
        target: Target::RatioAtLeast(0.55),
        how: format!(
            "wrk, {CONNECTIONS} connections, pushes to one of {} devices that are discarded, {} x \
             {load:?}, until the worker has settled the last. Ceiling, in turn: what ingest accepts \
             without a worker",
            bodies.len(),
            env.sizes.rounds,
        ),
        ..rounds.row("pushes/s", "pushes/s")
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
            row("worker", worker, ingest, Target::RatioAtMost(1.0), how),
            row("Redis", redis, ingest, Target::RatioAtMost(0.75), how),
            row("RabbitMQ", rabbitmq, ingest, Target::None, how),
        ]);
        let how = "user and system, in the same run. Beside it: its own without a worker";
        rows.push(row("ingest", ingest, median(alone), Target::None, how));
    }
    rows.push(Row {
        what: "small pushes, ledger of a finished one".to_owned(),
        target: Target::AtMost(32.0),
        how: "what Redis allocated more after the run, by the pushes of it".to_owned(),
        ..Row::alone(Figure::new(median(bytes), "bytes/push"))
    });
    Ok((rows, highest))
}

/// Returns how long a push takes to its device while others are delivered at this rate.
async fn moderate_load(
    env: &Environment,
    loaded: &LoadedApp,
    bodies: &[Value],
    rate: f64,
) -> anyhow::Result<Vec<Row>> {
    let broker: MqttUrl = env.mqtt_url().await?.parse()?;
    let (producer, count) = (loaded.producer(), env.sizes.isolated);
    let workers = Workers::start(&loaded.stack, 1).await;
    let mut listener = Listener::open(loaded, &broker, "moderate").await?;
    let (mut middles, mut tails) = (Rounds::default(), Rounds::default());
    let mut rates = Vec::new();
    for _ in 0..env.sizes.rounds {
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
    let row = |what: &str, rounds: &Rounds| Row {
        what: format!("one-device push under moderate load, {what}"),
        how: format!(
            "{} x {count} pushes, from the POST to the arrival at an MQTT device, while \
                 {reached:.0} others a second are settled, {:.0} % of the most. Ceiling, in turn: \
                 the same, alone",
            env.sizes.rounds,
            100.0 * MODERATE,
        ),
        ..rounds.row("ms", "ms")
    };
    Ok(vec![row("p50", &middles), row("p99", &tails)])
}
