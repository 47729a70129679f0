//! The end of a run on a partition.

use push_model::time::UnixMillis;

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
