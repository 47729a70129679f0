//! The parts that a worker is built from. `main`, `pushctl standalone` and the simulation each pass
//! their own.

use std::{sync::Arc, time::Duration};

use push_boot::{
    engines::Stores,
    metrics::{MetricsSettings, StoreMetrics},
    program::Engines,
};
use push_model::time::UnixMillis;
use push_queue::Queue;

use crate::control::Random;
use crate::{lane_health::LaneHealth, metrics::Metrics};
use push_model::time::Clock;
use push_transports::Transports;

/// The engines, transports and sources of chance that [`run`](crate::run) works with.
#[derive(Clone)]
pub struct Dependencies {
    /// The queue that messages come from.
    pub queue: Arc<dyn Queue>,
    /// The index of the devices, and the ledger.
    pub stores: Stores,
    /// The ways to reach devices.
    pub transports: Transports,
    /// The worker's counters.
    pub metrics: Metrics,
    /// The lanes that have an open consumer; the readiness check reads it.
    pub lanes: LaneHealth,
    /// The wall clock.
    pub clock: Clock,
    /// The source of randomness.
    pub random: Random,
    /// Observes the devices that are left of broadcasts; if absent, they are not observed.
    pub observation: Option<Observation>,
}

/// The sources and the interval for observing the devices that are left of broadcasts, for metrics.
#[derive(Debug, Clone)]
pub struct Observation {
    /// The interval at which the list is read.
    pub interval: Duration,
    /// The state of the queue, which shows the number of workers.
    pub stores: Arc<StoreMetrics>,
}

impl Dependencies {
    /// Dependencies with the system's clock and randomness.
    pub fn new(queue: Arc<dyn Queue>, stores: Stores, transports: Transports) -> Self {
        Self {
            queue,
            stores,
            transports,
            metrics: Metrics::default(),
            lanes: LaneHealth::default(),
            clock: Arc::new(UnixMillis::now),
            random: Arc::new(rand::random::<u64>),
            observation: None,
        }
    }

    /// Dependencies of a worker that publishes metrics.
    pub fn observed(engines: &Engines, transports: Transports, metrics: MetricsSettings) -> Self {
        let Engines { queue, stores, metrics: store_metrics } = engines;
        Self {
            metrics: Metrics::new(metrics.apps),
            observation: Some(Observation {
                interval: metrics.interval,
                stores: store_metrics.clone(),
            }),
            ..Self::new(queue.clone(), stores.clone(), transports)
        }
    }
}

impl std::fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dependencies")
            .field("queue", &self.queue)
            .field("stores", &self.stores)
            .field("transports", &self.transports)
            .finish_non_exhaustive()
    }
}
