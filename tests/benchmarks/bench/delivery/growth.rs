//! What more workers add to small pushes over a Redis Cluster: pushes delivered in a second by one
//! worker and by four. They start from a backlog, so that only workers and stores use the machine.
//!
//! On one machine all programs share its cores, which bound the growth. To show how far, the
//! processor time that all programs together use for a push is measured too, and how many pushes
//! the cores could deliver at that cost.

use std::time::Duration;

use push_tests::{
    servers::{Redis, RedisCluster},
    stack::{APP, Servers, Stack},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    load::{Producer, pushes::ordinary_push},
    measure::{
        cpu_time::CpuMeter,
        stats::{Rounds, median},
    },
    report::{Figure, Row, Target},
    setup::{Environment, Workers, environment::import, population},
};

/// Connections of the producers.
const CONNECTIONS: usize = 64;
/// Devices of the app; each is pushed to in turn.
const DEVICES: usize = 4096;
const MANY: usize = 4;
/// The longest time of filling a backlog: frozen workers send no heartbeats, and RabbitMQ closes a
/// connection that sends none for two heartbeat intervals.
const FILL_TIME: Duration = Duration::from_secs(5);

/// The measurements with one number of workers.
#[derive(Default)]
struct WorkerFigures {
    /// Pushes a second, and how many a second all cores could deliver.
    rounds: Rounds,
    /// Processor time of a push, in microseconds: workers, RabbitMQ, all masters of Redis.
    costs: [Vec<f64>; 3],
}

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let mut cluster = RedisCluster::start().await?;
    let servers =
        Servers { amqp: env.amqp_url().await?, redis: cluster.url(), mqtt: env.mqtt_url().await? };
    let stack = Stack::start(servers).await;
    import(&stack, APP, DEVICES, "discard").await?;
    let masters: Vec<u32> = cluster.nodes().iter().map(Redis::id).collect();
    let backlog = Backlog {
        env,
        stack: &stack,
        masters,
        bodies: (0..DEVICES).map(|number| ordinary_push(&population::client_id(number))).collect(),
    };
    let (mut one, mut many, mut growth) =
        (WorkerFigures::default(), WorkerFigures::default(), Rounds::default());
    for _ in 0..env.sizes.rounds {
        let alone = backlog.deliver(1, &mut one).await?;
        let together = backlog.deliver(MANY, &mut many).await?;
        growth.add(together, alone);
    }
    let (figure, ceiling, ratio) = growth.medians();
    let (limit, costs) = (many.rounds.medians().1, many.cost_text());
    let mut rows = vec![Row {
        what: format!("small pushes on a Redis Cluster, {MANY} workers over 1"),
        figure: Figure::new(figure, "pushes/s"),
        ceiling: Some(Figure::new(ceiling, "pushes/s")),
        ratio: Some(ratio),
        target: Target::None,
        how: format!(
            "Beside it: one worker, in turn. Bounded by the cores, which workers, RabbitMQ and \
             three masters share: {costs}, and {} cores settle {} pushes/s at most at that price, \
             {:.2} times what one worker does",
            cores(),
            Figure::new(limit, "").to_string().trim(),
            limit / ceiling,
        ),
    }];
    rows.extend([one.row("1 worker", env), many.row(&format!("{MANY} workers"), env)]);
    Ok(rows)
}

/// Makes backlogs of pushes that wait in the queue while the workers are frozen.
struct Backlog<'a> {
    env: &'a Environment,
    stack: &'a Stack,
    masters: Vec<u32>,
    bodies: Vec<Value>,
}

impl Backlog<'_> {
    /// Makes a backlog and lets `count` workers deliver it; returns pushes a second.
    async fn deliver(&self, count: usize, measured: &mut WorkerFigures) -> anyhow::Result<f64> {
        let Self { env, stack, masters, bodies } = self;
        let mut workers = Workers::start(stack, count).await;
        workers.freeze()?;
        let fill = env.sizes.load.min(FILL_TIME);
        let rate = Producer::of(stack).wrk_each(CONNECTIONS, fill, bodies).await?;
        let cpu = CpuMeter::start_groups([
            workers.ids(),
            vec![env.rabbitmq_pid().await?],
            masters.clone(),
        ]);
        let started = Instant::now();
        workers.thaw()?;
        let (pushes, end) = workers.wait_until_sent(rate * fill.as_secs_f64()).await?;
        let delivered = pushes / (end - started).as_secs_f64();
        if let Some(costs) = cpu.per_request(pushes) {
            let cost: f64 = costs.iter().sum();
            measured.rounds.add(delivered, cores() * 1e6 / cost);
            measured.costs.iter_mut().zip(costs).for_each(|(costs, cost)| costs.push(cost));
        }
        workers.stop().await?;
        Ok(delivered)
    }
}

impl WorkerFigures {
    fn row(&self, workers: &str, env: &Environment) -> Row {
        let (figure, ceiling, ratio) = self.rounds.medians();
        Row {
            what: format!("small pushes on a Redis Cluster, {workers}"),
            figure: Figure::new(figure, "pushes/s"),
            ceiling: Some(Figure::new(ceiling, "pushes/s")),
            ratio: Some(ratio),
            target: Target::None,
            how: format!(
                "{} x {:?} of pushes to one of {DEVICES} devices, discarded, that waited in the \
                 queue. Ceiling: all {} cores at what all programs use for a push, {}",
                env.sizes.rounds,
                env.sizes.load.min(FILL_TIME),
                cores(),
                self.cost_text()
            ),
        }
    }

    fn cost_text(&self) -> String {
        let [workers, rabbitmq, redis] = self.costs.each_ref().map(|costs| median(costs.clone()));
        format!("{workers:.1} us of workers, {rabbitmq:.1} of RabbitMQ, {redis:.1} of Redis a push")
    }
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}
