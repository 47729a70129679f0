//! The step that saves a batch: its counts and the checkpoint behind it, together or not at all.

use super::{Outcomes, Position, Retried, StrandId};

/// What one batch changes, in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The strand.
    pub strand: StrandId,
    /// Where the batch began; the step is saved only if the checkpoint is still there.
    pub from: Position,
    /// The new checkpoint.
    pub to: Position,
    /// Devices that were found to be meant.
    pub targeted: u64,
    /// Devices that were settled.
    pub outcomes: Outcomes,
    /// The retry that the batch leads to.
    pub opens: Option<StrandId>,
    /// Devices that were put off.
    pub retried: Retried,
}

/// What became of a [`Settlement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is saved. `recalled` tells whether the message has been recalled.
    Saved {
        /// Nothing more may be sent.
        recalled: bool,
    },
    /// Somebody else moved the checkpoint: what was counted here is not saved, and whoever
    /// moved it goes on.
    Overtaken,
}
