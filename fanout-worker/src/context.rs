//! What every part of a worker shares: engines, transports, bounds, and the caches and counters of
//! the running worker. Clock and randomness are in it too, so that a simulation controls every
//! decision.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{Arc, Weak},
};

use push_index::{Index, Ledger};
use push_model::{
    app::AppKey,
    envelope::{Head, Job},
    ledger::Retention,
    time::{Clock, UnixMillis},
};
use push_queue::Queue;
use tokio::sync::Notify;

use crate::{
    control::{
        Random,
        hold::Hold,
        jitter,
        pace::PaceCache,
        priority::IndexPriority,
        rate::RateMeter,
        retrier::{Retrier, RetryError},
        retry_policy::RetryPolicy,
        slots::TaskSlots,
    },
    dropped_copies::DroppedCopies,
    intake::Detachments,
    limits::{ClosingLimits, LedgerLimits, PlanLimits, RetryLimits, RunLimits},
    message_usage::ClosedMessages,
    metrics::Metrics,
};
use push_transports::{Lifetime, Outgoing, Transports};

/// The engines, transports, bounds, clock and randomness of one worker.
pub(crate) struct Context {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) index: Arc<dyn Index>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) transports: Transports,
    pub(crate) run: RunLimits,
    pub(crate) plan: PlanLimits,
    pub(crate) retry: RetryPolicy,
    pub(crate) retry_limits: RetryLimits,
    pub(crate) closing: ClosingLimits,
    pub(crate) priority: IndexPriority,
    /// How many partitions of each transport are in work at once.
    pub(crate) slots: TaskSlots,
    /// Deliveries of named pushes whose queue message is settled.
    pub(crate) detached: Detachments,
    pub(crate) me: Weak<Context>,
    pub(crate) retrier: Retrier,
    /// How long a ledger entry is kept: from the acceptance of its message, or from when a worker
    /// begins it if that is later.
    pub(crate) retention: Retention,
    /// How large the ledger may be.
    pub(crate) ledger_limits: LedgerLimits,
    pub(crate) paces: PaceCache,
    /// How fast broadcasts are sent.
    pub(crate) rate: RateMeter,
    pub(crate) closed: ClosedMessages,
    /// Notified when an envelope was moved to the isolated lane.
    pub(crate) has_isolated: Notify,
    pub(crate) dropped_copies: DroppedCopies,
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

    /// The last instant at which a message may be sent to a device.
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

    /// The message as transports take it.
    pub(crate) fn outgoing(&self, job: &Job) -> Outgoing {
        Outgoing {
            app: job.app(),
            message_id: job.head.message_id,
            payload: job.payload.clone(),
            lifetime: self.lifetime(&job.head),
        }
    }

    /// The latest time of registration that a broadcast reaches.
    pub(crate) fn registered_by(&self, head: &Head) -> UnixMillis {
        head.accepted_at.plus(self.run.clock_allowance)
    }

    /// Until when the ledger entry of a message is kept if it begins now.
    pub(crate) fn keep_until(&self, job: &Job) -> UnixMillis {
        job.head.accepted_at.max(self.now()).plus(self.retention.of(job.audience.kind()))
    }

    /// The app's pace, from the cache or the index.
    pub(crate) async fn pace(
        &self,
        app: &AppKey,
        hold: &Hold<'_>,
    ) -> Result<Option<NonZeroU32>, RetryError> {
        self.paces.of(app, &*self.index, &self.retrier, hold).await
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
