//! What every part of a worker works with: its engines, its transports, and its bounds. Clock and
//! randomness are passed in here, so that nothing that decides reads them by itself.

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use push_index::Index;
use push_model::{
    app::AppKey,
    envelope::{Head, Job},
    ledger::Retention,
    time::UnixMillis,
};
use push_queue::Queue;

use crate::{
    control::{
        Clock, Random,
        hold::Hold,
        jitter,
        pace::Paces,
        priority::IndexPriority,
        retry::RetryPolicy,
        waiting::{GaveUp, Waiting},
    },
    ledger_bounds::LedgerLimits,
    metrics::Metrics,
    transport::{Lifetime, Outgoing, Transports},
};

/// How broadcasts are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    /// The most partitions of one broadcast: how many workers can share it.
    pub partitions: usize,
    /// The fewest slots of a partition. A broadcast that is no larger is sent at once, like a push
    /// to named devices.
    pub min_slots: u64,
}

/// Bounds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Devices that are sent to between two checkpoints: the most that a crash repeats.
    pub batch: usize,
    /// How long a run lasts before the partition goes back to the end of its lane.
    pub time: Duration,
    /// How long after acceptance a push with time to live 0 ("now or never") is still "now".
    pub now_window: Duration,
    /// How far the clocks of machines may differ: a broadcast reaches devices that registered up
    /// to so much after it was accepted.
    pub clock_allowance: Duration,
}

/// Bounds of trying devices again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    /// Tries of a device, the first included.
    pub attempts: u32,
    /// Devices of a partition that wait for another try before no more of it are read.
    pub backlog: u64,
}

/// When a broadcast's ledger entry is looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosingLimits {
    /// The time between two looks.
    pub every: Duration,
    /// How long after its end a message may still be worked on before what is left of it counts
    /// as forgotten.
    pub rest: Duration,
}

/// The engines, transports, bounds, clock and randomness of one worker.
pub(crate) struct Context {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) index: Arc<dyn Index>,
    pub(crate) transports: Transports,
    pub(crate) run: RunLimits,
    pub(crate) plan: PlanLimits,
    pub(crate) retry: RetryPolicy,
    pub(crate) retry_limits: RetryLimits,
    pub(crate) closing: ClosingLimits,
    pub(crate) priority: IndexPriority,
    pub(crate) waiting: Waiting,
    /// How long a ledger entry is kept: from the acceptance of its message, or from when a worker
    /// begins it if that is later.
    pub(crate) keep: Retention,
    /// How large the ledger may be.
    pub(crate) ledger: LedgerLimits,
    pub(crate) paces: Paces,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
}

impl Context {
    pub(crate) fn now(&self) -> UnixMillis {
        (self.clock)()
    }

    /// A number from 0 to 1.
    pub(crate) fn jitter(&self) -> f64 {
        jitter(&self.random)
    }

    /// The last instant at which something of a message may be sent.
    pub(crate) fn deadline(&self, head: &Head) -> UnixMillis {
        match self.lifetime(head) {
            Lifetime::NowOrNever { until } | Lifetime::Until(until) => until,
        }
    }

    /// How long a message may be sent.
    pub(crate) fn lifetime(&self, head: &Head) -> Lifetime {
        if head.expires_at == head.accepted_at {
            Lifetime::NowOrNever { until: head.accepted_at.plus(self.run.now_window) }
        } else {
            Lifetime::Until(head.expires_at)
        }
    }

    /// What its devices receive of a message.
    pub(crate) fn outgoing(&self, job: &Job) -> Outgoing {
        Outgoing {
            app_id: job.head.app_id.clone(),
            message_id: job.head.message_id,
            payload: job.payload.clone(),
            lifetime: self.lifetime(&job.head),
        }
    }

    /// The latest registration that a broadcast reaches.
    pub(crate) fn registered_by(&self, head: &Head) -> UnixMillis {
        head.accepted_at.plus(self.run.clock_allowance)
    }

    /// Until when the ledger entry of a message is kept, as of now.
    pub(crate) fn keep_until(&self, job: &Job) -> UnixMillis {
        job.head.accepted_at.max(self.now()).plus(self.keep.of(job.audience.reach()))
    }

    /// The app's pace.
    pub(crate) async fn pace(
        &self,
        app: &AppKey,
        hold: &Hold<'_>,
    ) -> Result<Option<NonZeroU32>, GaveUp> {
        self.paces.of(app, &*self.index, &self.waiting, hold).await
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("queue", &self.queue)
            .field("index", &self.index)
            .field("transports", &self.transports)
            .finish_non_exhaustive()
    }
}
