//! The only step that changes a partition: a claim, or a batch's counts together with the
//! checkpoint behind it, in one atomic write.

use serde::{Deserialize, Serialize};

use super::{Leftover, Outcomes, PartitionState, Retried};
use crate::{app::AppKey, ids::MessageId, time::UnixMillis};

/// The changes of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The nonce of the job that is worked on ([`Entry::dedup_nonce`](super::Entry::dedup_nonce)).
    /// The entry of another job is not changed.
    pub dedup_nonce: u64,
    /// The number of the partition in the plan.
    pub partition: u32,
    /// The state that the step follows; it takes effect only if the partition is still in it.
    pub from: PartitionState,
    /// The new state.
    pub to: PartitionState,
    /// The new leftovers; none leaves them as they are.
    pub leftovers: Option<Vec<Leftover>>,
    /// The counts that the step adds.
    pub counts: Counts,
    /// The entry is kept until then at least; none leaves that as it is.
    pub keep_until: Option<UnixMillis>,
}

/// One message's step in a call with steps of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageStep {
    /// The message's app.
    pub app: AppKey,
    /// The message.
    pub message: MessageId,
    /// Its step.
    pub step: Advance,
}

/// The counts that a batch adds to those of its message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Devices found to be in the audience.
    pub targeted: u64,
    /// Devices that have an outcome.
    pub outcomes: Outcomes,
    /// Tries that ended without an outcome.
    pub retried: Retried,
}

impl Counts {
    /// Adds what another step counts.
    pub fn add(&mut self, other: &Self) {
        self.targeted += other.targeted;
        self.outcomes.add(&other.outcomes);
        for (reason, count) in &other.retried {
            *self.retried.entry(*reason).or_default() += count;
        }
    }
}

/// The result of an [`Advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvanceOutcome {
    /// The step is saved.
    Saved {
        /// The message has been recalled: nothing more may be sent.
        recalled: bool,
    },
    /// The partition is in another state, or the entry is another job's: nothing was changed.
    Conflict,
    /// The ledger has no entry for this message.
    Unknown,
}
