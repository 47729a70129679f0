//! Decides from the claim in the ledger whether a queue message may claim its partition. Pure.

use std::cmp::Ordering;

use push_model::{
    envelope::{PartitionTask, Unsaved},
    ledger::{Claim, PartitionState, PriorDeliveries},
};

/// A delivery's request to own a partition, and what it knows of its own tries.
#[derive(Debug, Clone)]
pub(crate) struct ClaimRequest {
    /// Number of the partition.
    pub(crate) partition: u32,
    /// The epoch that is continued.
    pub(crate) parent: u64,
    /// The owner of the claim with that epoch; 0 if there is none.
    pub(crate) parent_owner: u64,
    /// The number of the queue message, the same in all its deliveries. 0 for an ordinary job,
    /// because it need only differ from those of other messages for the same partition.
    pub(crate) nonce: u64,
    /// The number of this delivery of the message, from 1.
    pub(crate) delivery: u32,
    /// A random number that identifies this delivery.
    pub(crate) owner: u64,
    /// Deliveries whose claims are continued whatever their epoch. A read that shows none of these
    /// claims proves nothing, because the request that makes the claim may still arrive. It cannot
    /// take effect any more once this delivery has made its own claim, as long as the index keeps
    /// that.
    pub(crate) continues: Option<PriorDeliveries>,
    /// This delivery has tried to claim, and does not know whether that succeeded.
    pub(crate) tried: bool,
    /// The last epoch that this delivery claimed; 0 before its first claim. If the ledger lost that
    /// claim, the next one gets a later epoch, because no state of a partition may look like an
    /// earlier state that was lost.
    pub(crate) claimed: u64,
    /// [`PartitionTask::detached`], until this delivery has claimed.
    pub(crate) is_detached: bool,
    /// The claim to continue instead of the parent, because the detached run has renewed it.
    pub(crate) renewed: Option<Claim>,
    /// A batch that was sent and is not saved.
    pub(crate) unsaved: Option<Unsaved>,
    /// The progress to go on from if there is no entry ([`PartitionTask::progress`]).
    pub(crate) progress: Option<Unsaved>,
}

impl ClaimRequest {
    /// Makes the request of a delivery of this task.
    pub(crate) fn of(task: &PartitionTask, delivery: u32, owner: u64) -> Self {
        let PartitionTask { partition, parent, parent_owner, nonce, continues, .. } = *task;
        Self {
            partition,
            parent,
            parent_owner,
            nonce,
            delivery,
            owner,
            continues,
            tried: false,
            claimed: 0,
            is_detached: task.detached,
            renewed: None,
            unsaved: task.unsaved.clone(),
            progress: task.progress.clone(),
        }
    }

    /// Notes that this delivery has claimed.
    pub(crate) fn record_claim(&mut self, claim: &Claim) {
        self.tried = false;
        self.claimed = claim.epoch;
        self.is_detached = false;
    }

    /// Notes that the entry was begun anew: the partition goes on from where it was.
    pub(in crate::partition) fn begun_anew(&mut self) {
        if let Some(progress) = &self.progress {
            self.unsaved = Some(progress.clone().and(self.unsaved.take()));
        }
    }

    /// Returns the deliveries whose claims the next message of the partition continues.
    pub(crate) fn continued(&self) -> Option<PriorDeliveries> {
        let Self { nonce, delivery, tried, claimed, .. } = *self;
        // Before the first delivery of a message, nothing can have claimed with its nonce. A claim
        // of this delivery's own ended what earlier ones tried.
        let continues = self.continues.filter(|_| claimed == 0);
        if tried || (claimed == 0 && delivery > 1) {
            return Some(PriorDeliveries::followed_by(continues, nonce, delivery));
        }
        continues
    }
}

/// The action that a delivery may take on its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimDecision {
    /// Nothing is left to do on the partition.
    Ended,
    /// Nothing: another message continues the partition, this one is stale.
    Stale,
    /// Nothing: a later delivery of the same message owns the partition.
    Superseded,
    /// Wait: another message has the same nonce, and has claimed.
    Duplicate,
    /// Nothing yet: the detached run that this message stands in for has renewed its claim, which
    /// is this one.
    Renewed(Claim),
    /// Go on: this delivery owns the partition.
    Owned,
    /// Claim with this claim. `takeover`: in place of another delivery of the same message.
    Claim { claim: Claim, takeover: bool },
}

/// Decides from the partition's state in the ledger.
pub(crate) fn decide(state: &PartitionState, request: &ClaimRequest) -> ClaimDecision {
    if state.is_ended() {
        return ClaimDecision::Ended;
    }
    let claim = |after: u64, takeover| {
        let epoch = after.max(request.parent).max(request.claimed).saturating_add(1);
        let ClaimRequest { nonce, delivery, owner, .. } = *request;
        ClaimDecision::Claim { claim: Claim { epoch, nonce, delivery, owner }, takeover }
    };
    match state.claim {
        Some(current) if current.owner == request.owner => ClaimDecision::Owned,
        Some(current) if current.nonce == request.nonce => {
            match current.delivery.cmp(&request.delivery) {
                Ordering::Greater => ClaimDecision::Superseded,
                Ordering::Equal if request.claimed == 0 => ClaimDecision::Duplicate,
                Ordering::Equal | Ordering::Less => claim(current.epoch, true),
            }
        }
        // If it is no later than this delivery's own claim, the ledger lost the latter.
        Some(current)
            if request.continues.is_some_and(|earlier| earlier.covers(&current))
                && (request.claimed == 0 || current.epoch <= request.claimed) =>
        {
            claim(current.epoch, false)
        }
        Some(current)
            if request.is_detached
                && current.epoch > request.parent
                && current.owner == request.parent_owner =>
        {
            ClaimDecision::Renewed(current)
        }
        // Nothing that this message follows has claimed so late. Even if the ledger lost this
        // delivery's own claim, it is the claim of a message that goes on beside this one.
        Some(current) if current.epoch > request.parent => ClaimDecision::Stale,
        // The ledger lost the parent, and another message made the claim with its epoch.
        Some(current)
            if current.epoch == request.parent && current.owner != request.parent_owner =>
        {
            ClaimDecision::Stale
        }
        current => claim(current.map_or(0, |current| current.epoch), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owner of the claim that a request continues.
    const PARENT: u64 = 1;

    fn request(parent: u64, nonce: u64, owner: u64) -> ClaimRequest {
        let (delivery, continues, tried, claimed, unsaved) = (2, None, false, 0, None);
        ClaimRequest {
            partition: 0,
            parent,
            parent_owner: PARENT,
            nonce,
            delivery,
            owner,
            continues,
            tried,
            claimed,
            is_detached: false,
            renewed: None,
            unsaved,
            progress: None,
        }
    }

    fn current(epoch: u64, nonce: u64, owner: u64) -> PartitionState {
        let claim = Some(Claim { epoch, nonce, delivery: 1, owner });
        PartitionState { claim, ..PartitionState::default() }
    }

    fn claims(epoch: u64, nonce: u64, owner: u64, takeover: bool) -> ClaimDecision {
        ClaimDecision::Claim { claim: Claim { epoch, nonce, delivery: 2, owner }, takeover }
    }

    #[test]
    fn the_message_that_continues_the_last_claim_may_claim_and_older_ones_are_stale() {
        let fresh = PartitionState::default();
        assert_eq!(decide(&fresh, &request(0, 5, 1)), claims(1, 5, 1, false));
        assert_eq!(decide(&current(3, 5, 1), &request(3, 6, 2)), claims(4, 6, 2, false));
        assert_eq!(decide(&current(3, 5, 1), &request(2, 6, 2)), ClaimDecision::Stale);
        assert_eq!(decide(&PartitionState::ENDED, &request(3, 6, 2)), ClaimDecision::Ended);
    }

    #[test]
    fn a_message_that_is_delivered_again_takes_over_from_its_first_delivery() {
        assert_eq!(decide(&current(3, 5, 1), &request(2, 5, 2)), claims(4, 5, 2, true));
        assert_eq!(decide(&current(3, 5, 1), &request(2, 5, 1)), ClaimDecision::Owned);
        let first = ClaimRequest { delivery: 1, ..request(2, 5, 1) };
        let mut by_second = current(4, 5, 2);
        by_second.claim = by_second.claim.map(|claim| Claim { delivery: 2, ..claim });
        assert_eq!(decide(&by_second, &first), ClaimDecision::Superseded);
    }

    #[test]
    fn a_claim_that_the_index_lost_is_made_again_with_a_later_epoch() {
        let continues = Some(PriorDeliveries { first: 4, last: 4, delivery: 1 });
        let mut request = ClaimRequest { continues, ..request(2, 5, 7) };
        request.record_claim(&Claim { epoch: 3, nonce: 5, delivery: 2, owner: 7 });
        assert_eq!(decide(&current(2, 3, 1), &request), claims(4, 5, 7, false));
        assert_eq!(decide(&current(3, 5, 1), &request), claims(4, 5, 7, true));
        request.record_claim(&Claim { epoch: 4, nonce: 5, delivery: 2, owner: 7 });
        assert_eq!(
            decide(&current(3, 4, 1), &request),
            claims(5, 5, 7, false),
            "the ledger lost its own claim"
        );
        assert_eq!(
            decide(&current(4, 4, 1), &request),
            claims(5, 5, 7, false),
            "an earlier request took effect after the ledger lost its own claim"
        );
        assert_eq!(decide(&current(5, 4, 1), &request), ClaimDecision::Stale, "taken over");
    }

    #[test]
    fn a_message_whose_claim_the_index_lost_leaves_the_partition_to_the_one_that_claimed_instead() {
        let mut second = request(2, 5, 7);
        second.record_claim(&Claim { epoch: 4, nonce: 5, delivery: 2, owner: 7 });
        // The index goes back to the first delivery, which hands the partition on. The message that
        // it publishes claims the epoch that was lost.
        assert_eq!(decide(&current(4, 6, 8), &second), ClaimDecision::Stale);
        assert_eq!(decide(&current(3, 6, 8), &second), ClaimDecision::Stale);
    }

    #[test]
    fn a_message_whose_parent_the_index_lost_is_stale_beside_another_claim_of_that_epoch() {
        let other = PARENT + 1;
        assert_eq!(decide(&current(3, 5, PARENT), &request(3, 6, 7)), claims(4, 6, 7, false));
        assert_eq!(decide(&current(3, 4, other), &request(3, 6, 7)), ClaimDecision::Stale);
        // No claim of that epoch was made instead, so nothing goes on with the partition.
        assert_eq!(decide(&current(2, 4, other), &request(3, 6, 7)), claims(4, 6, 7, false));
    }

    #[test]
    fn the_task_beside_a_detached_run_waits_while_the_run_renews_its_claim_and_then_takes_over() {
        let mut task = ClaimRequest { is_detached: true, ..request(3, 6, 7) };
        let renewed = current(4, 5, PARENT);
        let claim = renewed.claim.unwrap();
        assert_eq!(decide(&renewed, &task), ClaimDecision::Renewed(claim));
        task.parent = claim.epoch;
        assert_eq!(decide(&renewed, &task), claims(5, 6, 7, false), "not renewed since");
        // The envelope of the run was delivered again, or the message that follows the run has
        // claimed.
        for other in [current(5, 5, 8), current(5, 9, 8)] {
            assert_eq!(decide(&other, &task), ClaimDecision::Stale);
        }
    }

    #[test]
    fn the_second_of_two_messages_with_one_nonce_waits_and_then_continues_the_first() {
        let mut second = ClaimRequest { delivery: 1, ..request(2, 5, 2) };
        assert_eq!(decide(&current(3, 5, 1), &second), ClaimDecision::Duplicate);
        second.tried = true;
        let first = PriorDeliveries { first: 5, last: 5, delivery: 1 };
        assert_eq!(second.continued(), Some(first));
    }

    #[test]
    fn a_message_continues_a_claim_of_which_it_was_not_known_whether_it_was_made() {
        let before = ClaimRequest { tried: true, ..request(2, 5, 7) };
        let continues = before.continued();
        assert_eq!(continues, Some(PriorDeliveries { first: 5, last: 5, delivery: 2 }));
        let mut after = ClaimRequest { continues, ..request(2, 6, 8) };
        assert_eq!(decide(&current(3, 5, 7), &after), claims(4, 6, 8, false));
        assert_eq!(decide(&current(3, 4, 7), &after), ClaimDecision::Stale, "another message");
        let mut by_third = current(3, 5, 9);
        by_third.claim = by_third.claim.map(|claim| Claim { delivery: 3, ..claim });
        assert_eq!(
            decide(&by_third, &after),
            ClaimDecision::Stale,
            "the message was delivered again"
        );
        after.tried = true;
        assert_eq!(after.continued(), Some(PriorDeliveries { first: 5, last: 6, delivery: 2 }));
        assert_eq!(ClaimRequest { delivery: 1, ..request(2, 5, 7) }.continued(), None);
    }

    #[test]
    fn an_earlier_claim_may_arrive_until_the_message_has_claimed_itself() {
        let continues = Some(PriorDeliveries { first: 3, last: 5, delivery: 1 });
        let mut message = ClaimRequest { continues, delivery: 1, ..request(0, 6, 8) };
        // It finds nothing and tries to claim, and before that arrives, an earlier claim does.
        let ClaimDecision::Claim { claim, .. } = decide(&PartitionState::default(), &message)
        else {
            panic!()
        };
        message.tried = true;
        for late in [current(1, 3, 1), current(1, 5, 2)] {
            let taken = decide(&late, &message);
            assert!(matches!(taken, ClaimDecision::Claim { claim, .. } if claim.epoch == 2));
        }
        // From its own claim on, earlier ones conflict, and what takes over from it is another's.
        message.record_claim(&claim);
        assert_eq!(message.continued(), None);
        assert_eq!(decide(&current(2, 3, 1), &message), ClaimDecision::Stale);
    }

    #[test]
    fn an_index_that_is_unavailable_for_any_number_of_messages_leaves_the_first_claim_continued() {
        let mut message = ClaimRequest { delivery: 1, tried: true, ..request(0, 5, 1) };
        for owner in 2..1000 {
            let continues = message.continued();
            let nonce = PriorDeliveries::next_nonce(continues, owner * owner);
            message = ClaimRequest { continues, nonce, ..request(0, nonce, owner) };
            assert!(matches!(decide(&current(1, 5, 1), &message), ClaimDecision::Claim { .. }));
            message.tried = true;
        }
    }

    #[test]
    fn of_two_publishes_of_a_task_the_first_to_claim_makes_the_other_stale() {
        let ClaimDecision::Claim { claim, .. } = decide(&current(3, 5, 1), &request(3, 6, 2))
        else {
            panic!()
        };
        let after = PartitionState { claim: Some(claim), ..PartitionState::default() };
        assert_eq!(decide(&after, &request(3, 7, 3)), ClaimDecision::Stale);
    }

    #[test]
    fn a_message_that_is_ahead_of_the_ledger_claims_behind_itself() {
        assert_eq!(decide(&current(3, 5, 1), &request(9, 6, 2)), claims(10, 6, 2, false));
        assert_eq!(decide(&PartitionState::default(), &request(9, 6, 2)), claims(10, 6, 2, false));
    }
}
