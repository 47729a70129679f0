//! What every part of a worker works with. Clock and randomness are passed in here, so that
//! nothing that decides reads them by itself.

use std::{fmt, sync::Arc};

use push_shared::{index::Index, queue::Queue, time::UnixMillis};

use crate::{
    metrics::Metrics, paces::Paces, patience::Patience, right_of_way::RightOfWay,
    strand::TurnLimits, transports::Transports, verdict::Backoff,
};

/// Where the time comes from.
pub type Clock = Arc<dyn Fn() -> UnixMillis + Send + Sync>;

/// Where randomness comes from: evenly distributed numbers.
pub type Random = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How broadcasts are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    /// The most strands of one broadcast: how many workers can share it.
    pub strands: usize,
    /// The fewest slots of a strand. A broadcast that is no larger is sent at once, like a push
    /// to named devices.
    pub min_slots: u64,
}

/// The engines, transports, bounds, clock and randomness of one worker.
pub(crate) struct Core {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) index: Arc<dyn Index>,
    pub(crate) transports: Transports,
    pub(crate) limits: TurnLimits,
    pub(crate) plan: PlanLimits,
    pub(crate) right_of_way: RightOfWay,
    pub(crate) backoff: Backoff,
    /// Tries of a device, the first included.
    pub(crate) retry_attempts: u32,
    pub(crate) patience: Patience,
    /// How long a ledger entry is kept after its message was accepted.
    pub(crate) keep: std::time::Duration,
    pub(crate) paces: Paces,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
}

impl Core {
    pub(crate) fn now(&self) -> UnixMillis {
        (self.clock)()
    }

    /// A number from 0 to 1.
    pub(crate) fn jitter(&self) -> f64 {
        (self.random)() as f64 / u64::MAX as f64
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("queue", &self.queue)
            .field("index", &self.index)
            .field("transports", &self.transports)
            .finish_non_exhaustive()
    }
}
