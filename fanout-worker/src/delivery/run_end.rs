//! How a run on a partition ended, and where the next message of the partition continues.

use push_model::{
    device::TransportKind,
    envelope::Unsaved,
    ledger::{Claim, PriorDeliveries},
    time::UnixMillis,
};

use super::{claim::ClaimRequest, run::DetachedRun};
use crate::{broadcasts::Left, control::retrier::RetryError};

/// How a run on a partition ended.
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
    /// The index was unavailable for as long as a message may be held.
    IndexUnavailable,
    /// The app's pace is used up until this time.
    Paced(UnixMillis),
    /// Devices are to be tried again at this time, and nothing is to be done before.
    RetryDue(UnixMillis),
    /// This worker waits for what is open without the queue message; if it dies, the next one goes on at this
    /// time, also if the message has expired by then.
    Detached(UnixMillis),
    /// Another copy of the message holds the ledger entry and may end unsent: ask again at this
    /// time, also if this copy has expired by then.
    Deferred(UnixMillis),
    /// The worker is stopping.
    Interrupted,
    /// What it needs can never be read; the reason.
    Broken(String),
}

impl RunEnd {
    /// Every [name](Self::name).
    pub(crate) const NAMES: [&str; 14] = [
        "finished",
        "stale",
        "superseded",
        "contended",
        "yielded",
        "crowded",
        "transport_unavailable",
        "index_unavailable",
        "paced",
        "retry_due",
        "detached",
        "deferred",
        "interrupted",
        "broken",
    ];

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
            Self::IndexUnavailable => "index_unavailable",
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
            RetryError::HoldExpired => Self::IndexUnavailable,
            RetryError::Broken(what) => Self::Broken(what),
        }
    }
}

/// What the next message of the partition continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Continuation {
    /// The claim to continue: this run's, or the one that a detached run has renewed. None if there
    /// is neither: then the next message continues what this one did.
    pub(crate) claim: Option<Claim>,
    /// Deliveries whose claims it continues as well.
    pub(crate) continues: Option<PriorDeliveries>,
    /// A batch that was sent and is not saved.
    pub(crate) unsaved: Option<Unsaved>,
    /// How far the partition is; none if this run does not know.
    pub(crate) progress: Option<Unsaved>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) end: RunEnd,
    pub(crate) continuation: Continuation,
    /// What is left of the partition, for the list of open broadcasts.
    pub(crate) left: Left,
    /// The transport that its devices wait for, if the plan does not say it.
    pub(crate) waits_for: Option<TransportKind>,
    /// What was handed over and is still waited for, without the queue message.
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
        Self { end, continuation, left: Left::Unknown, waits_for, detached: None }
    }
}
