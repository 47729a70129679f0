//! What the ledger keeps of one message.

use std::collections::BTreeMap;

use super::{
    Advance, Advanced, Ahead, Claim, FailReason, Outcomes, Partition, PartitionState, Plan,
    Retried, RetryReason, State,
};
use crate::{
    ids::{AppId, MessageId},
    time::UnixMillis,
};

/// What a worker knows when it begins a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app_id: AppId,
    /// When ingest accepted it.
    pub accepted_at: UnixMillis,
    /// When it expires.
    pub expires_at: UnixMillis,
    /// Tells two accepted copies of one id apart: see [`Entry::copy`].
    pub copy: u64,
    /// When the entry may be forgotten.
    pub keep_until: UnixMillis,
    /// How it is cut, where that is known without the index: a push to named devices is one
    /// partition. Saves the step of storing a plan apart.
    pub plan: Option<Plan>,
    /// Who owns partition 0, if this step begins the entry. Saves the step of claiming it apart.
    pub claim: Option<Claim>,
    /// The copy whose entry this one replaces: one that ended without being sent to any device.
    /// An entry of another copy stays.
    pub replaces: Option<u64>,
}

/// One partition of a message, as a worker reads it before it claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionView {
    /// [`Entry::copy`].
    pub copy: Option<u64>,
    /// Whether the message was recalled.
    pub recalled: bool,
    /// The partition.
    pub partition: Partition,
}

/// Everything the ledger knows of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app_id: AppId,
    /// When ingest accepted it.
    pub accepted_at: UnixMillis,
    /// When it expires. None in the entry of a message that was recalled before a worker began
    /// it: until one does, the recall is all that is known.
    pub expires_at: Option<UnixMillis>,
    /// Which accepted copy of the message this entry belongs to. Two requests with one
    /// `Idempotency-Key` make two jobs with one id; the copy that opens the entry is sent. The
    /// other is dropped, unless the first expires unsent and the other expires later
    /// ([`Entry::is_replaced_by`]). None as above.
    pub copy: Option<u64>,
    /// When it was recalled.
    pub recalled_at: Option<UnixMillis>,
    /// The plan, once there is one.
    pub plan: Option<Plan>,
    /// The partitions that were claimed, by their place in the plan.
    pub partitions: BTreeMap<u32, Partition>,
    /// Devices found to be meant so far.
    pub targeted: u64,
    /// Devices that have an outcome.
    pub outcomes: Outcomes,
    /// Tries so far that ended without an outcome.
    pub retried: Retried,
}

impl Entry {
    /// The entry of a message that has just begun.
    pub fn begin(opened: &Opened) -> Self {
        Self {
            message_id: opened.message_id,
            app_id: opened.app_id.clone(),
            accepted_at: opened.accepted_at,
            expires_at: Some(opened.expires_at),
            copy: Some(opened.copy),
            recalled_at: None,
            plan: opened.plan.clone(),
            partitions: begun(opened),
            targeted: 0,
            outcomes: Outcomes::default(),
            retried: Retried::new(),
        }
    }

    /// The entry of a message that is recalled before a worker began it.
    pub fn recalled_ahead(
        app_id: AppId,
        message_id: MessageId,
        at: UnixMillis,
        ahead: &Ahead,
    ) -> Self {
        Self {
            message_id,
            app_id,
            accepted_at: ahead.accepted_at,
            expires_at: None,
            copy: None,
            recalled_at: Some(at),
            plan: None,
            partitions: BTreeMap::new(),
            targeted: 0,
            outcomes: Outcomes::default(),
            retried: Retried::new(),
        }
    }

    /// Fills in what only the queue's message knows, when a worker begins a message that was
    /// recalled before.
    pub fn begin_recalled(&mut self, opened: &Opened) {
        self.accepted_at = opened.accepted_at;
        self.expires_at = Some(opened.expires_at);
        self.copy = Some(opened.copy);
        self.plan.clone_from(&opened.plan);
        self.partitions = begun(opened);
        // Where the index lost the entry and kept the recall, a worker may have counted before.
        self.targeted = 0;
        self.outcomes = Outcomes::default();
        self.retried = Retried::new();
    }

    /// Devices that were found to be meant and have no outcome yet.
    pub fn pending(&self) -> u64 {
        self.targeted.saturating_sub(self.outcomes.total())
    }

    /// A partition; one that was never claimed is as at the beginning.
    pub fn partition(&self, number: u32) -> Partition {
        self.partitions.get(&number).cloned().unwrap_or_default()
    }

    /// What a worker reads of a partition.
    pub fn view(&self, number: u32) -> PartitionView {
        PartitionView {
            copy: self.copy,
            recalled: self.recalled_at.is_some(),
            partition: self.partition(number),
        }
    }

    /// Changes a partition and the counts, as every engine does it: the engines do so where they
    /// store the entry, and the simulation through this function.
    pub fn advance(&mut self, step: &Advance) -> Advanced {
        if self.copy != Some(step.copy) || self.partition(step.partition).state != step.from {
            return Advanced::Conflict;
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
        Advanced::Saved { recalled: self.recalled_at.is_some() }
    }

    /// Whether every partition is worked off and no device is pending.
    pub fn is_closed(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| {
            let mut numbers = (0..).zip(&plan.partitions).map(|(number, _)| number);
            numbers
                .all(|number: u32| self.partitions.get(&number).is_some_and(|p| p.state.is_ended()))
        }) && self.pending() == 0
    }

    /// Whether it expired, and no device was sent to before: then another copy of the message may
    /// take its place.
    pub fn ended_unsent(&self) -> bool {
        self.is_closed() && self.outcomes.expired > 0 && self.is_unsent()
    }

    /// Whether no device can have received it or refused it, and the message was not recalled.
    pub fn is_unsent(&self) -> bool {
        let Self { outcomes, recalled_at, retried, .. } = self;
        // A device that never answered may have received it.
        let may_be_sent = outcomes.sent > 0 || retried.contains_key(&RetryReason::Unanswered);
        recalled_at.is_none() && !may_be_sent && outcomes.failed.is_empty()
    }

    /// Whether an entry begins anew with this step ([`Opened::replaces`]). One of which only a
    /// recall is known does; one that was recalled does not.
    pub fn is_replaced_by(&self, opened: &Opened) -> bool {
        let is_named = self.copy == opened.replaces && self.recalled_at.is_none();
        self.copy.is_none() || is_named
    }

    /// Where the message is in its life.
    pub fn state(&self) -> State {
        if self.recalled_at.is_some() {
            State::Recalled
        } else if self.is_closed() {
            let unrecorded = self.outcomes.failed.contains_key(&FailReason::Unrecorded);
            if self.outcomes.expired > 0 || unrecorded { State::Expired } else { State::Done }
        } else if self.targeted > 0 {
            State::Sending
        } else {
            State::Accepted
        }
    }
}

/// The partitions of a message that begins with this step.
fn begun(opened: &Opened) -> BTreeMap<u32, Partition> {
    let claimed = |claim| {
        let state = PartitionState { claim: Some(claim), ..PartitionState::default() };
        (0, Partition { state, leftovers: Vec::new() })
    };
    opened.claim.map(claimed).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Counts;

    fn entry() -> Entry {
        Entry::begin(&Opened {
            message_id: MessageId::issue(&"a".parse().unwrap()),
            app_id: "a".parse().unwrap(),
            accepted_at: UnixMillis(0),
            expires_at: UnixMillis(1000),
            copy: 0,
            keep_until: UnixMillis(2000),
            plan: None,
            claim: None,
            replaces: None,
        })
    }

    fn end(entry: &mut Entry, partition: u32) {
        let step = Advance {
            copy: 0,
            partition,
            from: entry.partition(partition).state,
            to: PartitionState::ENDED,
            leftovers: None,
            counts: Counts::default(),
            keep_until: None,
        };
        assert_eq!(entry.advance(&step), Advanced::Saved { recalled: false });
    }

    #[test]
    fn a_message_is_done_when_every_partition_is_and_no_device_is_pending() {
        let mut entry = entry();
        assert_eq!(entry.state(), State::Accepted);
        entry.plan = Some(Plan { partitions: vec![vec![], vec![]] });
        entry.targeted = 2;
        entry.outcomes.sent = 1;
        end(&mut entry, 0);
        assert_eq!((entry.state(), entry.pending()), (State::Sending, 1));
        end(&mut entry, 1);
        assert_eq!(entry.state(), State::Sending);
        entry.outcomes.fail(FailReason::Gone);
        assert_eq!((entry.state(), entry.pending()), (State::Done, 0));
    }

    #[test]
    fn a_step_takes_effect_only_on_the_state_that_it_follows() {
        let mut entry = entry();
        let claim = Some(Claim { generation: 1, nonce: 2, delivery: 1, owner: 3 });
        let to = PartitionState { claim, ..PartitionState::default() };
        let step = Advance {
            copy: 0,
            partition: 4,
            from: PartitionState::default(),
            to,
            leftovers: None,
            counts: Counts { targeted: 1, ..Counts::default() },
            keep_until: None,
        };
        assert_eq!(entry.advance(&step), Advanced::Saved { recalled: false });
        assert_eq!(entry.advance(&step), Advanced::Conflict);
        assert_eq!((entry.partition(4).state, entry.targeted), (to, 1));
        let of_another_copy = Advance { copy: 1, from: to, ..step };
        assert_eq!(entry.advance(&of_another_copy), Advanced::Conflict);
        assert_eq!(entry.targeted, 1);
    }

    #[test]
    fn an_audience_without_devices_is_done_at_once() {
        let mut entry = entry();
        entry.plan = Some(Plan { partitions: vec![] });
        assert_eq!(entry.state(), State::Done);
    }
}
