//! Pushes to one device each, from acceptance to settled: what they cost every program, and what
//! the ledger keeps of them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use push_tests::service::Program;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    crowd,
    ingest::forget_jobs,
    load::{Rounds, median, ordinary_push},
    report::{Figure, Row, Target},
    world::{World, cpu_time, used_memory},
};

/// Connections of the producers.
const CONNECTIONS: usize = 64;
/// Different pushes that are sent in turn, each to a device of its own.
const DEVICES: usize = 4096;
/// What is accepted is settled within this.
const SETTLED: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The worker is done when it has settled nothing for so long.
const QUIET: Duration = Duration::from_millis(300);
/// Load before the first round.
const WARM_UP: Duration = Duration::from_secs(1);
/// The worker's counter of devices that were sent to.
const SENT: &str = r#"push_worker_devices_total{outcome="sent",reason=""}"#;

/// The processor time of these processes; none where the system does not tell.
fn spent(processes: &[u32; 4]) -> Option<Vec<f64>> {
    processes.iter().map(|process| cpu_time(*process)).collect()
}

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let crowd = world.big().await?;
    let amqp = world.amqp().await?;
    let producer = crowd.producer();
    let devices = DEVICES.min(crowd.size);
    let step = crowd.size / devices;
    let bodies: Vec<_> = (0..devices).map(|n| ordinary_push(&crowd::client_id(n * step))).collect();

    let mut rounds = Rounds::default();
    let mut bytes = Vec::new();
    let mut shares: [Vec<f64>; 4] = Default::default();
    producer.wrk_each(CONNECTIONS, WARM_UP, &bodies).await?;
    forget_jobs(&amqp, &crowd.stack).await?;
    for _ in 0..world.sizes.rounds {
        let accepted = producer.wrk_each(CONNECTIONS, world.sizes.load, &bodies).await?;
        forget_jobs(&amqp, &crowd.stack).await?;

        let worker = crowd.stack.worker(&[]).await;
        let ingest = crowd.stack.ingest().id();
        let processes = [ingest, world.rabbitmq().await?, worker.id(), crowd.redis.id()];
        let memory = used_memory(&crowd.redis).await?;
        let before = spent(&processes);
        let started = Instant::now();
        let rate = producer.wrk_each(CONNECTIONS, world.sizes.load, &bodies).await?;
        let pushes = rate * world.sizes.load.as_secs_f64();
        let (pushes, end) = until_settled(&worker, pushes).await?;
        rounds.add(pushes / (end - started).as_secs_f64(), accepted);
        bytes.push((used_memory(&crowd.redis).await?.saturating_sub(memory)) as f64 / pushes);
        if let (Some(before), Some(after)) = (before, spent(&processes)) {
            for ((share, before), after) in shares.iter_mut().zip(before).zip(&after) {
                share.push((after - before) * 1e6 / pushes);
            }
        }
        ensure!(worker.stop().await.success(), "the worker did not stop well");
    }
    let (figure, ceiling, ratio) = rounds.medians();
    let how = format!(
        "wrk, {CONNECTIONS} connections, pushes to one of {devices} devices that are discarded, {} x \
         {:?}, until the worker has settled the last. Ceiling, in turn: what ingest accepts without \
         a worker",
        world.sizes.rounds, world.sizes.load
    );
    let mut rows = vec![Row {
        what: "small pushes, settled end to end".to_owned(),
        figure: Figure::new(figure, "pushes/s"),
        ceiling: Some(Figure::new(ceiling, "pushes/s")),
        ratio: Some(ratio),
        target: Target::RatioAtLeast(0.75),
        how,
    }];
    if shares.iter().all(|share| !share.is_empty()) {
        let [ingest, rabbitmq, worker, redis] = shares.map(median);
        for (what, figure, target) in [
            ("worker", worker, Target::RatioAtMost(0.7)),
            ("Redis", redis, Target::RatioAtMost(0.5)),
            ("RabbitMQ", rabbitmq, Target::None),
        ] {
            rows.push(Row {
                what: format!("small pushes, processor time of {what}"),
                figure: Figure::new(figure, "us/push"),
                ceiling: Some(Figure::new(ingest, "us/push")),
                ratio: Some(figure / ingest),
                target,
                how: "user and system, in the same run. Beside it: that of ingest".to_owned(),
            });
        }
    }
    rows.push(Row {
        what: "small pushes, ledger of a finished one".to_owned(),
        figure: Figure::new(median(bytes), "bytes/push"),
        ceiling: None,
        ratio: None,
        target: Target::AtMost(48.0),
        how: "what Redis allocated more after the run, by the pushes of it".to_owned(),
    });
    Ok(rows)
}

/// Waits until the worker has nothing more to do; gives how many devices it has sent to, and when
/// the last of them was counted.
async fn until_settled(worker: &Program, about: f64) -> anyhow::Result<(f64, Instant)> {
    let wait = async {
        let (mut sent, mut since) = (0.0, Instant::now());
        loop {
            let now = worker.metric(SENT).await;
            if (now - sent).abs() > 0.5 {
                (sent, since) = (now, Instant::now());
            }
            // wrk counts answers: a push whose answer it did not wait for is settled all the same.
            if sent >= about.floor() && since.elapsed() > QUIET {
                return (sent, since);
            }
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(SETTLED, wait).await.context("the pushes are not settled in time")
}
