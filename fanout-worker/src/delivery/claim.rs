//! Who owns a partition.
//!
//! A queue message may exist twice (its publish was repeated, or a consumer lost its connection
//! while it worked), and the index may have forgotten its last writes. One rule tells what a
//! message is worth ([`decide`]), and one compare-and-set makes its worker the owner:
//! - A message that continues the generation of the ledger, or a later one, is the newest: the
//!   claim goes through. A later one means that the index forgot.
//! - A message that the ledger's claim was made with is delivered again: it claims once more, and
//!   the delivery before it can save nothing any more. An earlier delivery never takes a claim from
//!   a later one, whatever it believes about its session.
//! - A message that was handed on before it was known whether one of its deliveries had claimed
//!   continues that claim ([`Earlier`]).
//! - Two messages may have one number (a publish of a copy byte for byte was repeated). The one
//!   that finds the other's claim is put off.
//! - Every other message continues an older generation: a stale copy.
//!
//! A worker keeps its message until the partition has ended or a message that continues its own
//! claim is confirmed. So the claim in the ledger always has a message in the queue, and a stale
//! copy can be acknowledged without a look at what the owner does.

use std::cmp::Ordering;

use push_model::{
    envelope::{Job, PartitionTask, Unsaved},
    ledger::{
        Advance, Advanced, Checkpoint, Claim, Counts, Earlier, Leftover, Partition, PartitionState,
        PartitionView, Plan, leftover,
    },
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    opening::{Opening, open},
    run::RunEnd,
};
use crate::{context::Context, control::hold::Hold};

/// How often a claim is tried against others that claim meanwhile, before the partition is put
/// off.
const TRIES: u32 = 8;

/// The most messages whose claims another one continues. One is added when a message is handed on
/// that may have claimed and does not know it: the index was away for as long as a message is held,
/// or the worker stopped. Beyond so many in a row, none of which reached the index, the first claim
/// counts as another message's, and the partition is left as it is until its entry is closed.
const MOST_CONTINUED: usize = 64;

/// With what a partition is claimed.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    /// Which partition.
    pub(crate) partition: u32,
    /// The generation that is continued.
    pub(crate) parent: u64,
    /// Names the queue message.
    pub(crate) nonce: u64,
    /// Which delivery of it this is.
    pub(crate) delivery: u32,
    /// Names this delivery.
    pub(crate) owner: u64,
    /// Whose claims are continued whatever their generation.
    pub(crate) continues: Vec<Earlier>,
    /// This delivery has tried to claim, and does not know whether it has.
    pub(crate) tried: bool,
    /// The last generation that this delivery claimed. If the index forgot it, the next claim has
    /// a later one: a state of the partition must never look like another one that was forgotten.
    pub(crate) claimed: u64,
    /// What was sent and is not saved.
    pub(crate) unsaved: Option<Unsaved>,
}

impl Ticket {
    pub(crate) fn of(task: &PartitionTask, delivery: u32, owner: u64) -> Self {
        let PartitionTask { partition, parent, nonce, ref continues, ref unsaved, .. } = *task;
        let (continues, unsaved) = (continues.clone(), unsaved.clone());
        let (tried, claimed) = (false, 0);
        Self { partition, parent, nonce, delivery, owner, continues, tried, claimed, unsaved }
    }

    /// This delivery tries to claim in place of `held`.
    fn tries(&mut self, held: Option<Claim>) {
        self.tried = true;
        self.continues.retain(|earlier| held.is_some_and(|held| earlier.covers(&held)));
    }

    /// It has claimed.
    pub(crate) fn has_claimed(&mut self, claim: &Claim) {
        self.tried = false;
        self.claimed = claim.generation;
        self.continues.clear();
    }

    /// Whose claims the message continues to which the partition is handed on.
    pub(crate) fn handed_on(self) -> Vec<Earlier> {
        let Self { nonce, delivery, mut continues, tried, .. } = self;
        // The first delivery of a message knows that no other has claimed with it.
        if tried || delivery > 1 {
            remember(&mut continues, Earlier { nonce, delivery });
        }
        continues
    }
}

/// Notes whose claims a message continues; the oldest of too many is forgotten.
pub(crate) fn remember(continues: &mut Vec<Earlier>, earlier: Earlier) {
    let older = (continues.len() + 1).saturating_sub(MOST_CONTINUED);
    continues.drain(..older);
    continues.push(earlier);
}

/// What a message is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worth {
    /// Nothing is left to do on the partition.
    Ended,
    /// Another message continues the partition.
    Stale,
    /// A later delivery of the same message has the partition.
    Superseded,
    /// There are two messages with one number, and the other one has claimed.
    Twin,
    /// This delivery owns the partition.
    Mine,
    /// It may claim with this claim. `again`: in place of another delivery of the same message.
    Claim { claim: Claim, again: bool },
}

/// Reads off the ledger what a message is worth.
pub(crate) fn decide(state: &PartitionState, ticket: &Ticket) -> Worth {
    if state.is_ended() {
        return Worth::Ended;
    }
    let claim = |after: u64, again| {
        let generation = after.max(ticket.parent).max(ticket.claimed).saturating_add(1);
        let Ticket { nonce, delivery, owner, .. } = *ticket;
        Worth::Claim { claim: Claim { generation, nonce, delivery, owner }, again }
    };
    match state.claim {
        Some(held) if held.owner == ticket.owner => Worth::Mine,
        Some(held) if held.nonce == ticket.nonce => match held.delivery.cmp(&ticket.delivery) {
            Ordering::Greater => Worth::Superseded,
            Ordering::Equal if ticket.claimed == 0 => Worth::Twin,
            Ordering::Equal | Ordering::Less => claim(held.generation, true),
        },
        Some(held) if ticket.continues.iter().any(|earlier| earlier.covers(&held)) => {
            claim(held.generation, false)
        }
        // Older than what this delivery claimed itself: the index forgot that claim.
        Some(held) if held.generation > ticket.parent && held.generation >= ticket.claimed => {
            Worth::Stale
        }
        held => claim(held.map_or(0, |held| held.generation), false),
    }
}

/// A partition that this worker owns.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) claim: Claim,
    pub(crate) state: PartitionState,
    pub(crate) leftovers: Vec<Leftover>,
    pub(crate) recalled: bool,
    /// `recalled` was true or false at this time or later.
    pub(crate) checked_at: Instant,
    /// It was taken from another delivery of the same message.
    pub(crate) again: bool,
    /// What the claim saved besides.
    pub(crate) saved: Option<Counts>,
}

/// A message's partition that is to be claimed.
pub(crate) struct Claiming<'a> {
    pub(crate) context: &'a Context,
    pub(crate) job: &'a Job,
    pub(crate) plan: Option<&'a Plan>,
    /// The queue message.
    pub(crate) hold: &'a Hold<'a>,
}

impl Claiming<'_> {
    /// Claims the partition, from what is known of it (`view`, no older than `asked_at`) or from
    /// what the ledger says now. A lost entry is opened again.
    pub(crate) async fn claim(
        &self,
        ticket: &mut Ticket,
        mut known: Option<(PartitionView, Instant)>,
    ) -> Result<Owned, RunEnd> {
        for _ in 0..TRIES {
            let (view, asked_at) = match known.take() {
                Some(known) => known,
                None => self.look(ticket).await?,
            };
            match decide(&view.partition.state, ticket) {
                Worth::Ended => return Err(RunEnd::Finished),
                Worth::Stale => return Err(RunEnd::Stale),
                Worth::Superseded => return Err(RunEnd::Superseded),
                // The other one has its time to finish; a message that continues its claim is
                // there if it does not.
                Worth::Twin => {
                    ticket.tried = true;
                    return Err(RunEnd::Contended);
                }
                // The queue has given the message to another consumer, which claims with it.
                Worth::Claim { again: true, .. } if !self.hold.is_held() => {
                    return Err(RunEnd::Superseded);
                }
                Worth::Mine => {
                    let claim = view.partition.state.claim.unwrap_or(Claim {
                        generation: ticket.parent,
                        nonce: ticket.nonce,
                        delivery: ticket.delivery,
                        owner: ticket.owner,
                    });
                    ticket.has_claimed(&claim);
                    if let Some(step) = self.unsaved_step(ticket, claim, &view.partition) {
                        if let Some(owned) = self.take(step, claim, view, false).await? {
                            return Ok(owned);
                        }
                        continue;
                    }
                    let PartitionView { partition, recalled, .. } = view;
                    let Partition { state, leftovers } = partition;
                    let (checked_at, again, saved) = (asked_at, false, None);
                    return Ok(Owned {
                        claim,
                        state,
                        leftovers,
                        recalled,
                        checked_at,
                        again,
                        saved,
                    });
                }
                Worth::Claim { claim, again } => {
                    let step =
                        self.unsaved_step(ticket, claim, &view.partition).unwrap_or(Advance {
                            copy: self.job.copy,
                            partition: ticket.partition,
                            from: view.partition.state,
                            to: PartitionState { claim: Some(claim), ..view.partition.state },
                            leftovers: None,
                            counts: Counts::default(),
                            keep_until: Some(self.context.keep_until(self.job)),
                        });
                    ticket.tries(view.partition.state.claim);
                    if let Some(owned) = self.take(step, claim, view, again).await? {
                        ticket.has_claimed(&claim);
                        return Ok(owned);
                    }
                }
            }
        }
        Err(RunEnd::Contended)
    }

    /// Reads the partition; opens the entry again if it was lost, or if the index is back at the
    /// entry of the copy that this one replaced.
    async fn look(&self, ticket: &Ticket) -> Result<(PartitionView, Instant), RunEnd> {
        let (context, head) = (self.context, &self.job.head);
        for _ in 0..TRIES {
            let look = || context.index.partition(&head.app_id, &head.message_id, ticket.partition);
            let answer = context.waiting.for_index(self.hold, look).await?;
            if let Some(view) = answer.value
                && view.copy == Some(self.job.copy)
            {
                if !self.is_planned().await? {
                    return Err(RunEnd::Stale);
                }
                return Ok((view, answer.asked_at));
            }
            match open(context, self.job, self.plan.cloned(), None, self.hold).await? {
                Opening::Open(..) => {
                    warn!(message_id = %head.message_id, "the ledger had no entry: opened again");
                }
                Opening::Repeated => return Err(RunEnd::Stale),
                Opening::After(time) => return Err(RunEnd::Behind(time)),
            }
        }
        Err(RunEnd::Contended)
    }

    /// Makes sure that the ledger has the plan that this message's slices are part of. An index that
    /// forgot its last writes may have lost it, and a job that is delivered again cuts another one
    /// if devices have registered since: two plans side by side would reach some devices twice and
    /// others never. False if another plan is in force, which has messages of its own.
    async fn is_planned(&self) -> Result<bool, RunEnd> {
        let Some(plan) = self.plan.filter(|plan| plan.is_shared()) else { return Ok(true) };
        let (context, message) = (self.context, &self.job.head.message_id);
        let fix = || context.index.plan(message, plan);
        let in_force = context.waiting.for_index(self.hold, fix).await?.value;
        Ok(in_force.is_none_or(|in_force| in_force == *plan))
    }

    /// The step that saves what was sent before, if the partition is where that began.
    fn unsaved_step(
        &self,
        ticket: &Ticket,
        claim: Claim,
        partition: &Partition,
    ) -> Option<Advance> {
        let unsaved = ticket.unsaved.as_ref().filter(|u| u.from == partition.state)?;
        let after = unsaved.leftovers.as_ref().unwrap_or(&partition.leftovers);
        let ended = unsaved.checkpoint == Checkpoint::End && leftover::count(after) == 0;
        let to = PartitionState {
            claim: Some(claim),
            step: unsaved.from.step.saturating_add(1),
            checkpoint: unsaved.checkpoint,
        };
        Some(Advance {
            copy: self.job.copy,
            partition: ticket.partition,
            from: partition.state,
            to: if ended { PartitionState::ENDED } else { to },
            leftovers: unsaved.leftovers.clone(),
            counts: unsaved.counts.clone(),
            keep_until: Some(self.context.keep_until(self.job)),
        })
    }

    /// Takes the step. None if the partition changed meanwhile.
    async fn take(
        &self,
        step: Advance,
        claim: Claim,
        view: PartitionView,
        again: bool,
    ) -> Result<Option<Owned>, RunEnd> {
        let head = &self.job.head;
        let message = &head.message_id;
        let advance = || self.context.index.advance(&head.app_id, message, &step);
        let answer = self.context.waiting.for_index(self.hold, advance).await?;
        let Advanced::Saved { recalled } = answer.value else { return Ok(None) };
        if again {
            info!(message_id = %message, partition = step.partition, "taken over");
        }
        let Advance { to, leftovers, counts, .. } = step;
        Ok(Some(Owned {
            claim,
            state: to,
            leftovers: leftovers.unwrap_or(view.partition.leftovers),
            recalled,
            checked_at: answer.asked_at,
            again,
            saved: (counts != Counts::default()).then_some(counts),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(parent: u64, nonce: u64, owner: u64) -> Ticket {
        let (delivery, continues, tried, claimed, unsaved) = (2, Vec::new(), false, 0, None);
        Ticket { partition: 0, parent, nonce, delivery, owner, continues, tried, claimed, unsaved }
    }

    fn held(generation: u64, nonce: u64, owner: u64) -> PartitionState {
        let claim = Some(Claim { generation, nonce, delivery: 1, owner });
        PartitionState { claim, ..PartitionState::default() }
    }

    fn claims(generation: u64, nonce: u64, owner: u64, again: bool) -> Worth {
        Worth::Claim { claim: Claim { generation, nonce, delivery: 2, owner }, again }
    }

    #[test]
    fn the_message_that_continues_the_last_claim_may_claim_and_older_ones_are_stale() {
        let fresh = PartitionState::default();
        assert_eq!(decide(&fresh, &ticket(0, 5, 1)), claims(1, 5, 1, false));
        assert_eq!(decide(&held(3, 5, 1), &ticket(3, 6, 2)), claims(4, 6, 2, false));
        assert_eq!(decide(&held(3, 5, 1), &ticket(2, 6, 2)), Worth::Stale);
        assert_eq!(decide(&PartitionState::ENDED, &ticket(3, 6, 2)), Worth::Ended);
    }

    #[test]
    fn a_message_that_is_delivered_again_takes_over_from_its_first_delivery() {
        assert_eq!(decide(&held(3, 5, 1), &ticket(2, 5, 2)), claims(4, 5, 2, true));
        assert_eq!(decide(&held(3, 5, 1), &ticket(2, 5, 1)), Worth::Mine);
        let first = Ticket { delivery: 1, ..ticket(2, 5, 1) };
        let mut by_second = held(4, 5, 2);
        by_second.claim = by_second.claim.map(|claim| Claim { delivery: 2, ..claim });
        assert_eq!(decide(&by_second, &first), Worth::Superseded);
    }

    #[test]
    fn a_claim_that_the_index_forgot_is_made_again_with_a_later_generation() {
        let mut ticket = ticket(2, 5, 7);
        ticket.has_claimed(&Claim { generation: 3, nonce: 5, delivery: 2, owner: 7 });
        assert_eq!(decide(&held(2, 4, 1), &ticket), claims(4, 5, 7, false));
        assert_eq!(decide(&held(3, 5, 1), &ticket), claims(4, 5, 7, true));
        ticket.has_claimed(&Claim { generation: 4, nonce: 5, delivery: 2, owner: 7 });
        assert_eq!(decide(&held(3, 4, 1), &ticket), claims(5, 5, 7, false), "it was claimed over");
        assert_eq!(decide(&held(4, 4, 1), &ticket), Worth::Stale, "another one claims as well");
    }

    #[test]
    fn the_second_of_two_messages_with_one_number_waits_and_then_continues_the_first() {
        let mut second = Ticket { delivery: 1, ..ticket(2, 5, 2) };
        assert_eq!(decide(&held(3, 5, 1), &second), Worth::Twin);
        second.tried = true;
        assert_eq!(second.handed_on(), [Earlier { nonce: 5, delivery: 1 }]);
    }

    #[test]
    fn a_message_continues_a_claim_of_which_it_was_not_known_whether_it_was_made() {
        let mut before = ticket(2, 5, 7);
        before.tries(None);
        let continues = before.handed_on();
        assert_eq!(continues, [Earlier { nonce: 5, delivery: 2 }]);
        let mut after = Ticket { continues, ..ticket(2, 6, 8) };
        assert_eq!(decide(&held(3, 5, 7), &after), claims(4, 6, 8, false));
        assert_eq!(decide(&held(3, 4, 7), &after), Worth::Stale, "another message");
        let mut by_third = held(3, 5, 9);
        by_third.claim = by_third.claim.map(|claim| Claim { delivery: 3, ..claim });
        assert_eq!(decide(&by_third, &after), Worth::Stale, "the message was delivered again");
        after.tries(held(3, 5, 7).claim);
        assert_eq!(after.handed_on().len(), 2);
        assert!(Ticket { delivery: 1, ..ticket(2, 5, 7) }.handed_on().is_empty());
    }

    #[test]
    fn of_two_copies_of_a_message_the_first_to_claim_makes_the_other_stale() {
        let Worth::Claim { claim, .. } = decide(&held(3, 5, 1), &ticket(3, 6, 2)) else { panic!() };
        let after = PartitionState { claim: Some(claim), ..PartitionState::default() };
        assert_eq!(decide(&after, &ticket(3, 7, 3)), Worth::Stale);
    }

    #[test]
    fn a_message_that_is_ahead_of_the_ledger_claims_behind_itself() {
        assert_eq!(decide(&held(3, 5, 1), &ticket(9, 6, 2)), claims(10, 6, 2, false));
        assert_eq!(decide(&PartitionState::default(), &ticket(9, 6, 2)), claims(10, 6, 2, false));
    }
}
