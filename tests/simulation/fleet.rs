//! The processes of the service: the shipped worker, on engines in memory.

use std::{sync::Arc, time::Duration};

use push_boot::engines::Stores;
use push_fanout_worker::{
    BulkLimits, ClosingLimits, Dependencies, LaneHealth, LedgerLimits, Metrics, PlanLimits,
    RetryLimits, RetryPolicy, RunLimits, WorkerSettings,
};
use push_model::{device::TransportKind, gone::GoneLimit, ledger::Retention};
use push_transports::Transports;

use crate::{
    engines::index::SimIndex,
    engines::queue::SimQueue,
    engines::transport::SimTransport,
    life::Life,
    world::{World, lock},
};

/// Time for which a worker that stops may finish what it has.
const DRAIN: Duration = Duration::from_hours(1);

pub(crate) fn start(world: &Arc<World>) -> Life {
    let life = Life::new(world);
    let (clock, random) = (life.clone(), world.clone());
    let index = Arc::new(SimIndex(life.clone()));
    let dependencies = Dependencies {
        queue: Arc::new(SimQueue(life.clone())),
        stores: Stores { index: index.clone(), ledger: index, ledger_is_separate: false },
        transports: Transports::default()
            .with(TransportKind::Mqtt, transport(&life, false))
            .with(TransportKind::Fcm, transport(&life, true)),
        metrics: Metrics::default(),
        lanes: LaneHealth::default(),
        clock: Arc::new(move || clock.now()),
        random: Arc::new(move || lock(&random.choices).number()),
        observation: None,
    };
    let stop = life.stopping().clone();
    tokio::spawn(push_fanout_worker::run(world.settings.clone(), dependencies, DRAIN, stop));
    life
}

fn transport(life: &Life, failing: bool) -> Arc<SimTransport> {
    Arc::new(SimTransport { life: life.clone(), failing })
}

/// The settings of the workers: small, so that every bound is reached.
pub(crate) fn settings(batch: usize, clock_allowance: Duration) -> WorkerSettings {
    let ms = Duration::from_millis;
    WorkerSettings {
        job_prefetch: 2,
        task_prefetch: 2,
        bulk: BulkLimits { requests: 1, yields: ms(5) },
        run: RunLimits { batch, time: ms(25), now_window: ms(5_000), clock_allowance },
        plan: PlanLimits { partitions: 3, min_slots: 4 },
        retry: RetryPolicy { first: ms(20), longest: ms(500) },
        retry_limits: RetryLimits { attempts: 5, backlog: 4 },
        gone_limit: GoneLimit::default(),
        closing: ClosingLimits { every: ms(20_000), write_off_after: ms(60_000) },
        index_pause: RetryPolicy { first: ms(50), longest: ms(400) },
        hold: ms(1_000),
        ledger_retention: Retention::all(Duration::from_hours(1)),
        // The store is small, and no entry may be evicted before the judge reads it.
        ledger: LedgerLimits { bytes: u64::MAX, every: Duration::from_hours(24 * 365) },
    }
}
