//! The entry that the ledger keeps of one message.

use std::collections::BTreeMap;

use super::{
    Advance, AdvanceOutcome, BroadcastNote, Claim, EarlyRecall, FailReason, MessageState, Outcomes,
    Partition, PartitionState, Plan, Retried, RetryReason, leftover,
};
use crate::{
    app::AppKey,
    ids::{AppId, MessageId},
    time::UnixMillis,
};

/// The first state of the entry of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app: AppKey,
    /// When ingest accepted it.
    pub accepted_at: UnixMillis,
    /// When it expires.
    pub expires_at: UnixMillis,
    /// The nonce of the job ([`Entry::dedup_nonce`]).
    pub dedup_nonce: u64,
    /// The time until which the entry is kept.
    pub keep_until: UnixMillis,
    /// The plan, if it is known without the index: a push to named devices has one partition. This
    /// saves a step of its own for the plan.
    pub plan: Option<Plan>,
    /// The claim of partition 0, if this step begins the entry. This saves a step of its own for
    /// the claim.
    pub claim: Option<Claim>,
    /// The deduplication nonce of the entry that this one replaces, because its job ended without
    /// being sent to any device. The entry of any other job stays.
    pub replaces: Option<u64>,
    /// The content and the sender of a broadcast; none for a push to named devices.
    pub broadcast: Option<Box<BroadcastNote>>,
}

/// One partition of a message, as a worker reads it before it claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionView {
    /// [`Entry::dedup_nonce`].
    pub dedup_nonce: Option<u64>,
    /// True if the message was recalled.
    pub recalled: bool,
    /// The partition.
    pub partition: Partition,
}

/// All that the ledger has of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app_id: AppId,
    /// When ingest accepted it.
    pub accepted_at: UnixMillis,
    /// When it expires. None in the entry of a message that was recalled before a worker began it:
    /// the entry then has the recall alone.
    pub expires_at: Option<UnixMillis>,
    /// The deduplication nonce of the job that this entry belongs to. Two requests with one
    /// `Idempotency-Key` make two jobs with one id and different nonces. The job that begins the
    /// entry is sent. The other is dropped, unless the first expires unsent and the other expires
    /// later, which the worker decides (`fanout-worker/src/partition/entry.rs`). None if `expires_at`
    /// is.
    pub dedup_nonce: Option<u64>,
    /// When it was recalled.
    pub recalled_at: Option<UnixMillis>,
    /// The plan, once there is one.
    pub plan: Option<Plan>,
    /// The partitions that were claimed, by their index in the plan.
    pub partitions: BTreeMap<u32, Partition>,
    /// Devices found so far to be in the audience.
    pub targeted: u64,
    /// Devices that have an outcome.
    pub outcomes: Outcomes,
    /// Tries so far that ended without an outcome.
    pub retried: Retried,
    /// [`NewEntry::broadcast`].
    pub broadcast: Option<Box<BroadcastNote>>,
}

impl Entry {
    /// The entry of a message that has just begun.
    pub fn begin(new: &NewEntry) -> Self {
        Self {
            message_id: new.message_id,
            app_id: new.app.id.clone(),
            accepted_at: new.accepted_at,
            expires_at: Some(new.expires_at),
            dedup_nonce: Some(new.dedup_nonce),
            recalled_at: None,
            plan: new.plan.clone(),
            partitions: first_partitions(new),
            targeted: 0,
            outcomes: Outcomes::default(),
            retried: Retried::new(),
            broadcast: new.broadcast.clone(),
        }
    }

    /// The entry of a message that is recalled before a worker began it.
    pub fn recalled_early(
        app_id: AppId,
        message_id: MessageId,
        at: UnixMillis,
        early: &EarlyRecall,
    ) -> Self {
        Self {
            message_id,
            app_id,
            accepted_at: early.accepted_at,
            expires_at: None,
            dedup_nonce: None,
            recalled_at: Some(at),
            plan: None,
            partitions: BTreeMap::new(),
            targeted: 0,
            outcomes: Outcomes::default(),
            retried: Retried::new(),
            broadcast: None,
        }
    }

    /// Adds what the job says, when a worker begins a message that was recalled before.
    pub fn begin_recalled(&mut self, new: &NewEntry) {
        self.accepted_at = new.accepted_at;
        self.expires_at = Some(new.expires_at);
        self.dedup_nonce = Some(new.dedup_nonce);
        self.plan.clone_from(&new.plan);
        self.partitions = first_partitions(new);
        self.broadcast.clone_from(&new.broadcast);
        // If the ledger lost the entry and then took the recall, a worker may have counted before.
        self.targeted = 0;
        self.outcomes = Outcomes::default();
        self.retried = Retried::new();
    }

    /// Targeted devices that have no outcome yet.
    pub fn pending(&self) -> u64 {
        self.targeted.saturating_sub(self.outcomes.total())
    }

    /// A partition; the initial one if it was never claimed.
    pub fn partition(&self, number: u32) -> Partition {
        self.partitions.get(&number).cloned().unwrap_or_default()
    }

    /// Returns what a worker reads of a partition before it claims it.
    pub fn view(&self, number: u32) -> PartitionView {
        PartitionView {
            dedup_nonce: self.dedup_nonce,
            recalled: self.recalled_at.is_some(),
            partition: self.partition(number),
        }
    }

    /// Changes a partition and the counts. This is the definition: the engines do the same in their
    /// stores, or call it, as the simulation does.
    pub fn advance(&mut self, step: &Advance) -> AdvanceOutcome {
        if self.dedup_nonce != Some(step.dedup_nonce)
            || self.partition(step.partition).state != step.from
        {
            return AdvanceOutcome::Conflict;
        }
        let partition = self.partitions.entry(step.partition).or_default();
        partition.state = step.to;
        if let Some(leftovers) = &step.leftovers {
            partition.leftovers.clone_from(leftovers);
        }
        self.targeted += step.counts.targeted;
        self.outcomes.add(&step.counts.outcomes);
        for (reason, count) in &step.counts.retried {
            *self.retried.entry(*reason).or_default() += count;
        }
        AdvanceOutcome::Saved { recalled: self.recalled_at.is_some() }
    }

    /// Returns true if every partition has ended and no device is pending.
    pub fn is_closed(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| {
            let mut numbers = (0..).zip(&plan.partitions).map(|(number, _)| number);
            numbers
                .all(|number: u32| self.partitions.get(&number).is_some_and(|p| p.state.is_ended()))
        }) && self.pending() == 0
    }

    /// Returns true if it expired before any device was sent to. Then another job of the same
    /// message may replace the entry.
    pub fn ended_unsent(&self) -> bool {
        self.is_closed() && self.outcomes.expired > 0 && self.is_unsent()
    }

    /// Returns true if no device can have received it or refused it, and the message was not
    /// recalled.
    pub fn is_unsent(&self) -> bool {
        let Self { outcomes, recalled_at, retried, .. } = self;
        // A device whose transport never answered may have received it, and so may one whose answer
        // its worker still waits for.
        let leftovers = self.partitions.values().flat_map(|partition| &partition.leftovers);
        let may_be_sent = outcomes.sent > 0
            || retried.contains_key(&RetryReason::Unanswered)
            || leftover::unanswered(leftovers) > 0;
        recalled_at.is_none() && !may_be_sent && outcomes.failed.is_empty()
    }

    /// Returns true if the new entry takes the place of this one ([`NewEntry::replaces`]). It does
    /// if this one has a recall alone, and does not if this one was begun and then recalled.
    pub fn is_replaced_by(&self, new: &NewEntry) -> bool {
        let is_named = self.dedup_nonce == new.replaces && self.recalled_at.is_none();
        self.dedup_nonce.is_none() || is_named
    }

    /// Returns the state of the message.
    pub fn state(&self) -> MessageState {
        if self.recalled_at.is_some() {
            MessageState::Recalled
        } else if self.is_closed() {
            let unrecorded = self.outcomes.failed.contains_key(&FailReason::Unrecorded);
            if self.outcomes.expired > 0 || unrecorded {
                MessageState::Expired
            } else {
                MessageState::Done
            }
        } else if self.targeted > 0 {
            MessageState::Sending
        } else {
            MessageState::Accepted
        }
    }
}

fn first_partitions(new: &NewEntry) -> BTreeMap<u32, Partition> {
    let claimed = |claim| {
        let state = PartitionState { claim: Some(claim), ..PartitionState::default() };
        (0, Partition { state, leftovers: Vec::new() })
    };
    new.claim.map(claimed).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::TransportKind,
        ledger::{Counts, Leftover},
    };

    fn entry() -> Entry {
        Entry::begin(&NewEntry {
            message_id: MessageId::issue_named(&"a".parse().unwrap()),
            app: AppKey::first("a".parse().unwrap()),
            accepted_at: UnixMillis(0),
            expires_at: UnixMillis(1000),
            dedup_nonce: 0,
            keep_until: UnixMillis(2000),
            plan: None,
            claim: None,
            replaces: None,
            broadcast: None,
        })
    }

    fn end(entry: &mut Entry, partition: u32) {
        let step = Advance {
            dedup_nonce: 0,
            partition,
            from: entry.partition(partition).state,
            to: PartitionState::ENDED,
            leftovers: None,
            counts: Counts::default(),
            keep_until: None,
        };
        assert_eq!(entry.advance(&step), AdvanceOutcome::Saved { recalled: false });
    }

    #[test]
    fn a_message_is_done_when_every_partition_is_and_no_device_is_pending() {
        let mut entry = entry();
        assert_eq!(entry.state(), MessageState::Accepted);
        entry.plan = Some(Plan::of(TransportKind::Mqtt, vec![vec![], vec![]]));
        entry.targeted = 2;
        entry.outcomes.sent = 1;
        end(&mut entry, 0);
        assert_eq!((entry.state(), entry.pending()), (MessageState::Sending, 1));
        end(&mut entry, 1);
        assert_eq!(entry.state(), MessageState::Sending);
        entry.outcomes.fail(FailReason::Gone);
        assert_eq!((entry.state(), entry.pending()), (MessageState::Done, 0));
    }

    #[test]
    fn a_step_takes_effect_only_on_the_state_that_it_follows() {
        let mut entry = entry();
        let claim = Some(Claim { epoch: 1, nonce: 2, delivery: 1, owner: 3 });
        let to = PartitionState { claim, ..PartitionState::default() };
        let step = Advance {
            dedup_nonce: 0,
            partition: 4,
            from: PartitionState::default(),
            to,
            leftovers: None,
            counts: Counts { targeted: 1, ..Counts::default() },
            keep_until: None,
        };
        assert_eq!(entry.advance(&step), AdvanceOutcome::Saved { recalled: false });
        assert_eq!(entry.advance(&step), AdvanceOutcome::Conflict);
        assert_eq!((entry.partition(4).state, entry.targeted), (to, 1));
        let of_another_job = Advance { dedup_nonce: 1, from: to, ..step };
        assert_eq!(entry.advance(&of_another_job), AdvanceOutcome::Conflict);
        assert_eq!(entry.targeted, 1);
    }

    #[test]
    fn an_audience_without_devices_is_done_at_once() {
        let mut entry = entry();
        entry.plan = Some(Plan { partitions: vec![] });
        assert_eq!(entry.state(), MessageState::Done);
    }

    #[test]
    fn a_device_that_was_handed_over_without_an_answer_keeps_its_message_from_being_replaced() {
        let mut entry = entry();
        entry.partitions.insert(0, Partition::default());
        assert!(entry.is_unsent());
        let leftover = |unanswered| Leftover {
            attempt: 1,
            unanswered,
            throttled: 0,
            due_at: UnixMillis(5),
            clients: vec!["d".parse().unwrap()],
        };
        for (unanswered, is_unsent) in [(0, true), (1, false)] {
            entry.partitions.get_mut(&0).unwrap().leftovers = vec![leftover(unanswered)];
            assert_eq!(entry.is_unsent(), is_unsent);
        }
    }
}
