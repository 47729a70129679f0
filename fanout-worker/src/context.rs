//! The things that every part of a worker shares: engines, transports, bounds, and the caches and
//! counters of the running worker. It includes the clock and the source of randomness, so that a
//! simulation controls every decision.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{Arc, Weak},
};

use push_index::Index;
use push_ledger::Ledger;
use push_model::{
    app::AppKey,
    envelope::{Head, Job},
    gone::GoneLimit,
    ledger::Retention,
    time::{Clock, UnixMillis},
};
use push_queue::Queue;
use tokio::sync::Notify;

use crate::{
    closed_messages::ClosedMessages,
    control::{
        Random,
        detachments::Detachments,
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
    limits::{ClosingLimits, LedgerLimits, PlanLimits, RetryLimits, RunLimits},
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
    pub(crate) gone_limit: GoneLimit,
    pub(crate) closing: ClosingLimits,
    pub(crate) priority: IndexPriority,
    /// Bounds the partitions of each transport that are in work concurrently.
    pub(crate) slots: TaskSlots,
    /// Runs on named pushes whose queue message is settled.
    pub(crate) detached: Detachments,
    pub(crate) me: Weak<Context>,
    pub(crate) retrier: Retrier,
    /// Retention of a ledger entry, from the acceptance of its message or from when a worker begins
    /// it, whichever is later.
    pub(crate) retention: Retention,
    /// The largest size of the ledger.
    pub(crate) ledger_limits: LedgerLimits,
    pub(crate) paces: PaceCache,
    /// The speed at which broadcasts are sent.
    pub(crate) rate: RateMeter,
    /// Messages that were closed, for the quotas of apps.
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

    /// Draws a number from 0 to 1.
    pub(crate) fn jitter(&self) -> f64 {
        jitter(&self.random)
    }

    /// Returns the last instant at which a message may be sent to a device.
    pub(crate) fn deadline(&self, head: &Head) -> UnixMillis {
        match self.lifetime(head) {
            Lifetime::NowOrNever { until } | Lifetime::Until(until) => until,
        }
    }

    /// Returns how long a message may be sent.
    pub(crate) fn lifetime(&self, head: &Head) -> Lifetime {
        if head.expires_at == head.accepted_at {
            Lifetime::NowOrNever { until: head.accepted_at.plus(self.run.now_window) }
        } else {
            Lifetime::Until(head.expires_at)
        }
    }

    /// Returns the message as transports take it.
    pub(crate) fn outgoing(&self, job: &Job) -> Outgoing {
        Outgoing {
            app: job.app(),
            message_id: job.head.message_id,
            payload: job.payload.clone(),
            localized: job.localized.clone(),
            language: None,
            lifetime: self.lifetime(&job.head),
        }
    }

    /// Returns the latest time of registration that a broadcast reaches.
    pub(crate) fn registered_by(&self, head: &Head) -> UnixMillis {
        head.accepted_at.plus(self.run.clock_allowance)
    }

    /// Returns until when the ledger entry of a message is kept if it begins now.
    pub(crate) fn keep_until(&self, job: &Job) -> UnixMillis {
        job.head.accepted_at.max(self.now()).plus(self.retention.of(job.audience.kind()))
    }

    /// Returns when the task beside a detached run is delivered. By then the run has ended or
    /// renewed its claim, unless its worker has died.
    pub(crate) fn detached_until(&self) -> UnixMillis {
        self.now().plus(self.transports.longest_silence())
    }

    /// Returns the app's pace, from the cache or the index.
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
