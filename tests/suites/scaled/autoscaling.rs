//! Workers that are scaled on what is left to do, as KEDA and Kubernetes do it: the number of workers is
//! the metric divided by its target. It rises immediately, and falls when it was lower for a while.
//!
//! Each worker has an MQTT broker of its own that acknowledges a fixed number of messages a second, so the
//! number of workers decides the speed of the service, whatever the machine.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use push_tests::{
    RogueBroker,
    broadcast::everyone,
    eventually,
    service::Program,
    stack::{Servers, Stack},
};
use tokio::time::sleep;

/// Capacity of a worker.
const DEVICES_PER_SECOND: u32 = 300;
/// One worker alone needs 40 s for them.
const DEVICES: u32 = 12_000;
/// Seconds in which a backlog should be done.
const TARGET: f64 = 5.0;
const MOST_WORKERS: usize = 6;
/// Time for which a lower number must be asked for before a worker is stopped.
const SCALE_DOWN_AFTER: Duration = Duration::from_secs(3);
/// Interval of reading the metric.
const POLL: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(90);

/// Metric that KEDA's ScaledObject in deploy/k8s reads first.
const METRIC: &str = "push_broadcast_work_seconds_left";

/// A fleet of workers, and how many there should be.
struct Fleet<'a> {
    stack: &'a Stack,
    workers: Vec<(Program, RogueBroker)>,
    /// Messages that brokers of stopped workers had.
    received: u64,
    wanted: VecDeque<(Instant, usize)>,
    most: usize,
}

impl<'a> Fleet<'a> {
    async fn of_one(stack: &'a Stack) -> Self {
        let mut fleet =
            Self { stack, workers: Vec::new(), received: 0, wanted: VecDeque::new(), most: 0 };
        fleet.add().await;
        fleet
    }

    async fn add(&mut self) {
        let broker = RogueBroker::start().await;
        broker.behave(|behaviour| behaviour.acks_per_second = Some(DEVICES_PER_SECOND));
        let flags =
            ["--tune", "metrics-interval=1s", "--batch", "50", "--tune", "partition-min-slots=100"];
        let worker = self.stack.worker_at(&broker.url(), &flags).await;
        self.workers.push((worker, broker));
        self.most = self.most.max(self.workers.len());
    }

    async fn remove(&mut self) {
        let (worker, broker) = self.workers.pop().unwrap();
        assert!(worker.stop().await.success());
        self.received += broker.received();
    }

    /// One step of the autoscaler.
    async fn scale(&mut self) {
        let mut work: f64 = 0.0;
        for (worker, _) in &self.workers {
            work = work.max(worker.metric(METRIC).await);
        }
        let needed = (1..MOST_WORKERS).find(|&n| n as f64 * TARGET >= work);
        let now = Instant::now();
        self.wanted.push_back((now, needed.unwrap_or(MOST_WORKERS)));
        self.wanted.retain(|(at, _)| now.duration_since(*at) < SCALE_DOWN_AFTER);
        let wanted = self.wanted.iter().map(|(_, wanted)| *wanted).max().unwrap_or(1);
        while self.workers.len() < wanted {
            self.add().await;
        }
        if self.workers.len() > wanted {
            self.remove().await;
        }
    }

    fn received(&self) -> u64 {
        self.received + self.workers.iter().map(|(_, broker)| broker.received()).sum::<u64>()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_scaled_from_1_to_6_and_back_during_a_broadcast_and_it_ends_sooner() {
    let stack = Stack::start(Servers::shared()).await;
    stack.import_crowd(0, DEVICES as usize).await;
    let mut fleet = Fleet::of_one(&stack).await;
    let id = stack.push(&everyone()).await;
    let begin = Instant::now();
    while stack.ledger(&id).await["state"] != "done" {
        assert!(begin.elapsed() < DEADLINE, "{}", stack.ledger(&id).await);
        fleet.scale().await;
        sleep(POLL).await;
    }
    let took = begin.elapsed();
    let alone = Duration::from_secs(u64::from(DEVICES / DEVICES_PER_SECOND));
    assert_eq!(fleet.most, MOST_WORKERS);
    assert!(took < alone * 6 / 10, "{took:?}, and one worker alone needs {alone:?}");

    let ledger = stack.ledger(&id).await;
    assert_eq!(ledger["sent"], DEVICES, "{ledger}");
    // A stop hands on unfinished work, and nothing is sent twice.
    assert_eq!(fleet.received(), u64::from(DEVICES));

    let begin = Instant::now();
    while fleet.workers.len() > 1 {
        assert!(begin.elapsed() < DEADLINE, "{} workers are left", fleet.workers.len());
        fleet.scale().await;
        sleep(POLL).await;
    }
    eventually("nothing is left to do", DEADLINE, async || {
        let left = fleet.workers[0].0.metric(METRIC).await;
        if left < 1.0 { Ok(()) } else { Err(left.to_string()) }
    })
    .await;
}
