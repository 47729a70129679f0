//! The end of a run on a partition, and where the next message of the partition continues.

use push_model::{
    device::TransportKind,
    envelope::Unsaved,
    ledger::{Claim, PriorDeliveries},
    time::UnixMillis,
};

use super::{claim::ClaimRequest, remaining::Remaining, run::DetachedRun};
use crate::control::retrier::RetryError;

/// The reason why a run on a partition ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The partition has ended.
    Finished,
    /// Another queue message continues the partition: this one is stale.
    Stale,
    /// The queue has delivered this message to another consumer, which goes on.
    Superseded,
    /// Other workers changed the partition each time that this one tried to claim it.
    Contended,
    /// The run's time is over before the partition's end, so that other partitions get a run.
    Yielded,
    /// Runs that wait for its transport have all of its slots; nothing was done.
    Crowded,
    /// A transport is unavailable; nothing was sent since the checkpoint.
    TransportUnavailable,
    /// The index or the ledger was unavailable for as long as a message may be held.
    StoreUnavailable,
    /// The app's pace is used up until this time.
    Paced(UnixMillis),
    /// Devices are to be tried again at this time, and nothing is to be done before.
    RetryDue(UnixMillis),
    /// A run goes on without the queue message. If its worker dies, the next task goes on at this
    /// time, even if the message has expired by then.
    Detached(UnixMillis),
    /// Another copy of the message holds the ledger entry and may end unsent: ask again at this
    /// time, even if this copy has expired by then.
    Deferred(UnixMillis),
    /// The worker is stopping.
    Interrupted,
    /// Something that it needs can never be read, for this reason.
    Broken(String),
}

impl RunEnd {
    /// The name in metrics.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Stale => "stale",
            Self::Superseded => "superseded",
            Self::Contended => "contended",
            Self::Yielded => "yielded",
            Self::Crowded => "crowded",
            Self::TransportUnavailable => "transport_unavailable",
            Self::StoreUnavailable => "store_unavailable",
            Self::Paced(_) => "paced",
            Self::RetryDue(_) => "retry_due",
            Self::Detached(_) => "detached",
            Self::Deferred(_) => "deferred",
            Self::Interrupted => "interrupted",
            Self::Broken(_) => "broken",
        }
    }
}

impl From<RetryError> for RunEnd {
    fn from(error: RetryError) -> Self {
        match error {
            RetryError::Interrupted => Self::Interrupted,
            RetryError::HoldExpired => Self::StoreUnavailable,
            RetryError::Broken(what) => Self::Broken(what),
        }
    }
}

/// The state in which the next message of the partition continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Continuation {
    /// The claim to continue: this run's, or the one that a detached run has renewed. None if there
    /// is neither: then the next message continues what this one did.
    pub(crate) claim: Option<Claim>,
    /// Deliveries whose claims it continues as well.
    pub(crate) continues: Option<PriorDeliveries>,
    /// A batch that was sent and is not saved.
    pub(crate) unsaved: Option<Unsaved>,
    /// The progress of the partition; none if this run does not know it.
    pub(crate) progress: Option<Unsaved>,
}

#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) end: RunEnd,
    pub(crate) continuation: Continuation,
    /// The devices that are left of the partition, for the list of open broadcasts.
    pub(crate) remaining: Remaining,
    /// The transport that its devices wait for, if the plan does not say it.
    pub(crate) waits_for: Option<TransportKind>,
    /// The run that goes on without the queue message, for the devices that are not answered yet.
    pub(crate) detached: Option<Box<DetachedRun>>,
}

impl RunResult {
    /// The result of a run that claimed nothing.
    pub(crate) fn not_begun(
        end: RunEnd,
        mut request: ClaimRequest,
        waits_for: Option<TransportKind>,
    ) -> Self {
        let unsaved = request.unsaved.take();
        let continues = request.continued();
        let claim = request.renewed;
        let continuation = Continuation { claim, continues, unsaved, progress: None };
        Self { end, continuation, remaining: Remaining::Unknown, waits_for, detached: None }
    }
}
