//! Decides which worker owns a partition.
//!
//! A queue message may exist twice, because its publish was repeated or a consumer lost its
//! connection while it worked, and the ledger may have lost its last writes. One pure rule
//! ([`decide`]) compares a message with the claim in the ledger, and one compare-and-set makes the
//! message's worker the owner:
//! - A message that continues the ledger's epoch, or a later one, is the newest: it may claim. A
//!   later one means that the ledger lost a claim.
//! - If the message with which the ledger's claim was made is delivered again, it claims once more,
//!   and the earlier delivery can save nothing from then on. An earlier delivery never takes a
//!   claim from a later one, even while its own session seems to be alive.
//! - A message that was handed on before it was known whether an earlier delivery had claimed
//!   continues that claim as well ([`PriorDeliveries`](push_model::ledger::PriorDeliveries)), until
//!   it has claimed itself: a request whose answer was lost may take effect at any time before
//!   that. If the ledger loses its own claim, such a request may take effect again.
//! - Two messages may have one nonce (a publish of the same bytes was repeated). The one that finds
//!   the other's claim is put off.
//! - The task beside a detached run is put off while that run renews its claim.
//! - Every other message is stale: it continues an older epoch, or a claim that the ledger lost.
//!
//! A worker keeps its message until the partition has ended, or until the message that continues
//! its claim is confirmed. So the claim in the ledger always has a message in the queue, and a
//! stale message can be acknowledged without asking what the owner does.
//!
//! - `decision`: the rule (pure)
//! - here: reading the partition, and the compare-and-set

mod decision;

use push_model::{
    envelope::Job,
    ledger::{
        Advance, AdvanceOutcome, Checkpoint, Claim, Counts, Leftover, Partition, PartitionState,
        PartitionView, Plan, leftover,
    },
};
use tokio::time::Instant;
use tracing::{info, warn};

pub(crate) use self::decision::ClaimRequest;
use self::decision::{ClaimDecision, decide};
use super::{
    entry::{EntryOutcome, begin_entry},
    missing::was_processed,
    run_end::RunEnd,
};
use crate::{context::Context, control::hold::Hold};

/// The most times that a claim is tried while other workers change the partition. Then it is
/// put off.
const TRIES: u32 = 8;

/// A partition that this worker owns.
#[derive(Debug)]
pub(crate) struct OwnedPartition {
    pub(crate) claim: Claim,
    pub(crate) state: PartitionState,
    pub(crate) leftovers: Vec<Leftover>,
    pub(crate) recalled: bool,
    /// `recalled` is what the ledger said at this time or later.
    pub(crate) checked_at: Instant,
    /// The claim replaced that of another delivery of the same message.
    pub(crate) takeover: bool,
    /// The counts of an unsaved batch that the claim saved in the same step.
    pub(crate) saved: Option<Counts>,
}

impl OwnedPartition {
    /// A partition that was claimed in the step that began its entry.
    pub(crate) fn begun(claim: Claim, checked_at: Instant) -> Self {
        Self {
            claim,
            state: PartitionState { claim: Some(claim), ..PartitionState::default() },
            leftovers: Vec::new(),
            recalled: false,
            checked_at,
            takeover: false,
            saved: None,
        }
    }
}

/// A message that claims a partition.
pub(crate) struct Claimant<'a> {
    pub(crate) context: &'a Context,
    pub(crate) job: &'a Job,
    pub(crate) plan: Option<&'a Plan>,
    /// The queue message.
    pub(crate) hold: &'a Hold<'a>,
}

impl Claimant<'_> {
    /// Claims the partition, first from the known view and the time at which the ledger was asked
    /// for it, then from a fresh read. A lost entry is begun again.
    pub(crate) async fn claim(
        &self,
        request: &mut ClaimRequest,
        mut known: Option<(PartitionView, Instant)>,
    ) -> Result<OwnedPartition, RunEnd> {
        for _ in 0..TRIES {
            let (view, asked_at) = match known.take() {
                Some(known) => known,
                None => self.read(request).await?,
            };
            match decide(&view.partition.state, request) {
                ClaimDecision::Ended => return Err(RunEnd::Finished),
                ClaimDecision::Stale => return Err(RunEnd::Stale),
                ClaimDecision::Superseded => return Err(RunEnd::Superseded),
                // The other message gets time to finish. If it does not, this one is handed on and
                // continues its claim.
                ClaimDecision::Duplicate => {
                    request.tried = true;
                    return Err(RunEnd::Contended);
                }
                ClaimDecision::Renewed(claim) => {
                    request.renewed = Some(claim);
                    return Err(RunEnd::Detached(self.context.detached_until()));
                }
                // The queue has delivered the message to another consumer, which claims with it.
                ClaimDecision::Claim { takeover: true, .. } if !self.hold.is_ours() => {
                    return Err(RunEnd::Superseded);
                }
                ClaimDecision::Owned => {
                    let claim = view.partition.state.claim.unwrap_or(Claim {
                        epoch: request.parent,
                        nonce: request.nonce,
                        delivery: request.delivery,
                        owner: request.owner,
                    });
                    request.record_claim(&claim);
                    if let Some(step) = self.unsaved_step(request, claim, &view.partition) {
                        if let Some(owned) = self.advance(step, claim, view, false).await? {
                            return Ok(owned);
                        }
                        continue;
                    }
                    let PartitionView { partition, recalled, .. } = view;
                    let Partition { state, leftovers } = partition;
                    let (checked_at, takeover, saved) = (asked_at, false, None);
                    return Ok(OwnedPartition {
                        claim,
                        state,
                        leftovers,
                        recalled,
                        checked_at,
                        takeover,
                        saved,
                    });
                }
                ClaimDecision::Claim { claim, takeover } => {
                    let step =
                        self.unsaved_step(request, claim, &view.partition).unwrap_or(Advance {
                            dedup_nonce: self.job.dedup_nonce,
                            partition: request.partition,
                            from: view.partition.state,
                            to: PartitionState { claim: Some(claim), ..view.partition.state },
                            leftovers: None,
                            counts: Counts::default(),
                            keep_until: Some(self.context.keep_until(self.job)),
                        });
                    request.tried = true;
                    if let Some(owned) = self.advance(step, claim, view, takeover).await? {
                        request.record_claim(&claim);
                        return Ok(owned);
                    }
                }
            }
        }
        Err(RunEnd::Contended)
    }

    /// Reads the partition. Begins the entry again if it was lost, or if the ledger went back to the
    /// entry of the copy that this one had replaced. An entry that was [evicted](super::missing)
    /// has ended.
    async fn read(&self, request: &mut ClaimRequest) -> Result<(PartitionView, Instant), RunEnd> {
        let (context, message, app) = (self.context, &self.job.head.message_id, self.job.app());
        for _ in 0..TRIES {
            let read = || context.ledger.partition(&app, message, request.partition);
            let answer = context.retrier.ask_store(self.hold, read).await?;
            let is_missing = answer.value.is_none();
            if let Some(view) = answer.value
                && view.dedup_nonce == Some(self.job.dedup_nonce)
            {
                if !self.ensure_plan().await? {
                    return Err(RunEnd::Stale);
                }
                return Ok((view, answer.asked_at));
            }
            if is_missing
                && was_processed(context, self.job, request.is_detached, self.hold).await?
            {
                return Err(RunEnd::Finished);
            }
            match begin_entry(context, self.job, self.plan.cloned(), None, self.hold).await? {
                EntryOutcome::Ours(..) => {
                    request.begun_anew();
                    warn!(
                        runbook = "a-store-is-unreachable-or-refuses-writes",
                        "the ledger had no entry for the message, so it was begun again"
                    );
                }
                EntryOutcome::Duplicate => return Err(RunEnd::Stale),
                EntryOutcome::Evicted => return Err(RunEnd::Finished),
                EntryOutcome::Deferred(time) => return Err(RunEnd::Deferred(time)),
            }
        }
        Err(RunEnd::Contended)
    }

    /// Makes sure that the ledger has the plan that this message's slot ranges belong to. An index
    /// that lost its last writes may have lost the plan, and a job that is delivered again cuts
    /// another one if devices have registered since: two plans side by side would reach some
    /// devices twice and others never. False if another plan is in force; that plan has messages of
    /// its own.
    async fn ensure_plan(&self) -> Result<bool, RunEnd> {
        let Some(plan) = self.plan.filter(|plan| plan.is_shared()) else { return Ok(true) };
        let (context, message) = (self.context, &self.job.head.message_id);
        let app = self.job.app();
        let fix = || context.ledger.plan(&app, message, plan);
        let in_force = context.retrier.ask_store(self.hold, fix).await?.value;
        Ok(in_force.is_none_or(|in_force| in_force == *plan))
    }

    /// The step that saves the unsaved batch, if the partition is still in the state in which the
    /// batch began.
    fn unsaved_step(
        &self,
        request: &ClaimRequest,
        claim: Claim,
        partition: &Partition,
    ) -> Option<Advance> {
        let unsaved = request.unsaved.as_ref().filter(|u| u.from == partition.state)?;
        let after = unsaved.leftovers.as_ref().unwrap_or(&partition.leftovers);
        let ended = unsaved.checkpoint == Checkpoint::End && leftover::count(after) == 0;
        let to = PartitionState {
            claim: Some(claim),
            step: unsaved.from.step.saturating_add(1),
            checkpoint: unsaved.checkpoint,
        };
        Some(Advance {
            dedup_nonce: self.job.dedup_nonce,
            partition: request.partition,
            from: partition.state,
            to: if ended { PartitionState::ENDED } else { to },
            leftovers: unsaved.leftovers.clone(),
            counts: unsaved.counts.clone(),
            keep_until: Some(self.context.keep_until(self.job)),
        })
    }

    /// Makes the step in the ledger. `None` if the partition changed meanwhile.
    async fn advance(
        &self,
        step: Advance,
        claim: Claim,
        view: PartitionView,
        takeover: bool,
    ) -> Result<Option<OwnedPartition>, RunEnd> {
        let (message, app) = (&self.job.head.message_id, self.job.app());
        let advance = || self.context.ledger.advance(&app, message, &step);
        let answer = self.context.retrier.ask_store(self.hold, advance).await?;
        let AdvanceOutcome::Saved { recalled } = answer.value else { return Ok(None) };
        if takeover {
            info!(partition = step.partition, "taken over");
        }
        let Advance { to, leftovers, counts, .. } = step;
        Ok(Some(OwnedPartition {
            claim,
            state: to,
            leftovers: leftovers.unwrap_or(view.partition.leftovers),
            recalled,
            checked_at: answer.asked_at,
            takeover,
            saved: (counts != Counts::default()).then_some(counts),
        }))
    }
}
