//! What more workers add to small pushes over a Redis Cluster: settled pushes a second with one
//! worker and with four, from a backlog, so that nothing but workers and stores takes part.
//!
//! On one machine they all share its cores, so the cores bound the growth. How far they do is
//! measured as well: what all programs together use for a push, and how many pushes the cores
//! could settle at that price.

use std::time::Duration;

use push_tests::{
    servers::{Redis, RedisCluster},
    stack::{APP, Servers, Stack},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    crowd,
    load::{Producer, Rounds, median, ordinary_push},
    processor::Spent,
    report::{Figure, Row, Target},
    workers::Workers,
    world::{World, import},
};

/// Connections of the producers.
const CONNECTIONS: usize = 64;
/// Devices of the app; each is pushed to in turn.
const DEVICES: usize = 4096;
const MANY: usize = 4;
/// The most time that a backlog is made of: workers whose clocks stand still send no heartbeats,
/// and RabbitMQ gives a connection up without any for two of their intervals.
const FILL: Duration = Duration::from_secs(5);

/// What was measured with so many workers.
#[derive(Default)]
struct Measured {
    /// Pushes a second, and how many all cores could settle.
    rounds: Rounds,
    /// Processor time of a push, in microseconds: workers, RabbitMQ, all masters of Redis.
    costs: [Vec<f64>; 3],
}

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let mut cluster = RedisCluster::start().await?;
    let servers =
        Servers { amqp: world.amqp().await?, redis: cluster.url(), mqtt: world.mqtt().await? };
    let stack = Stack::start(servers).await;
    import(&stack, APP, DEVICES, "discard").await?;
    let masters: Vec<u32> = cluster.nodes().iter().map(Redis::id).collect();
    let backlog = Backlog {
        world,
        stack: &stack,
        masters,
        bodies: (0..DEVICES).map(|number| ordinary_push(&crowd::client_id(number))).collect(),
    };
    let (mut one, mut many, mut growth) =
        (Measured::default(), Measured::default(), Rounds::default());
    for _ in 0..world.sizes.rounds {
        let alone = backlog.settle(1, &mut one).await?;
        let together = backlog.settle(MANY, &mut many).await?;
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
    rows.extend([one.row("1 worker", world), many.row(&format!("{MANY} workers"), world)]);
    Ok(rows)
}

/// Pushes that wait in the queue until workers are let go.
struct Backlog<'a> {
    world: &'a World,
    stack: &'a Stack,
    masters: Vec<u32>,
    bodies: Vec<Value>,
}

impl Backlog<'_> {
    /// Makes a backlog and has so many workers settle it; gives pushes a second.
    async fn settle(&self, count: usize, measured: &mut Measured) -> anyhow::Result<f64> {
        let Self { world, stack, masters, bodies } = self;
        let mut workers = Workers::start(stack, count).await;
        workers.freeze()?;
        let fill = world.sizes.load.min(FILL);
        let rate = Producer::of(stack).wrk_each(CONNECTIONS, fill, bodies).await?;
        let spent =
            Spent::by_groups([workers.ids(), vec![world.rabbitmq().await?], masters.clone()]);
        let started = Instant::now();
        workers.thaw()?;
        let (pushes, end) = workers.until_sent(rate * fill.as_secs_f64()).await?;
        let settled = pushes / (end - started).as_secs_f64();
        if let Some(costs) = spent.per(pushes) {
            let cost: f64 = costs.iter().sum();
            measured.rounds.add(settled, cores() * 1e6 / cost);
            measured.costs.iter_mut().zip(costs).for_each(|(costs, cost)| costs.push(cost));
        }
        workers.stop().await?;
        Ok(settled)
    }
}

impl Measured {
    fn row(&self, workers: &str, world: &World) -> Row {
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
                world.sizes.rounds,
                world.sizes.load.min(FILL),
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
