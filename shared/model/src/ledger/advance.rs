//! The one step that changes a partition: a claim, or a batch's counts with the checkpoint
//! behind it, together or not at all.

use serde::{Deserialize, Serialize};

use super::{Leftover, Outcomes, PartitionState, Retried};
use crate::{
    ids::{AppId, MessageId},
    time::UnixMillis,
};

/// What one step changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The copy of the message that is worked on ([`Entry::copy`](super::Entry::copy)). The entry of
    /// another copy is not changed.
    pub copy: u64,
    /// Which partition of the plan.
    pub partition: u32,
    /// The state that the step follows on; it takes effect only if this is still the state.
    pub from: PartitionState,
    /// The new state.
    pub to: PartitionState,
    /// The new leftovers; none leaves them as they are.
    pub leftovers: Option<Vec<Leftover>>,
    /// What is counted.
    pub counts: Counts,
    /// The entry is kept until then at least; none leaves that as it is.
    pub keep_until: Option<UnixMillis>,
}

/// A step of one message among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageStep {
    /// The message's app.
    pub app: AppId,
    /// The message.
    pub message: MessageId,
    /// Its step.
    pub step: Advance,
}

/// What a batch adds to the counts of its message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Devices that were found to be meant.
    pub targeted: u64,
    /// Devices that have an outcome.
    pub outcomes: Outcomes,
    /// Tries that ended without an outcome.
    pub retried: Retried,
}

/// What became of an [`Advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advanced {
    /// It is saved. `recalled` tells whether the message has been recalled.
    Saved {
        /// Nothing more may be sent.
        recalled: bool,
    },
    /// The partition is in another state, or the entry is another copy's: nothing was changed.
    Conflict,
    /// The ledger has no entry for this message.
    Unknown,
}
