//! The result of a run, and where the next message of the partition continues.

use push_model::{
    device::TransportKind,
    envelope::Unsaved,
    ledger::{Claim, PriorDeliveries},
};

use super::DetachedRun;
use crate::partition::{claim::ClaimRequest, remaining::Remaining, run_end::RunEnd};

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

/// The result of a run.
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
