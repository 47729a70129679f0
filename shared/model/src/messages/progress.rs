//! Derives the progress of a broadcast from its ledger entry. Pure.
//!
//! The number of devices that a broadcast reaches is known only at its end: `targeted` grows while
//! the partitions are worked on. But the plan says how many slots have to be read, and the
//! checkpoints say how many of them were.

use super::{
    ledger::Entry,
    plan::{slots_left, total_slots},
};

/// The slots of a broadcast's plan that its checkpoints have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Slots that the checkpoints have passed.
    pub done: u64,
    /// Slots of the plan; more than 0.
    pub total: u64,
}

impl Progress {
    /// Returns the progress of an entry. `None` if there are no slots to count: before the plan is
    /// fixed, and for named devices.
    pub fn of(entry: &Entry) -> Option<Self> {
        let plan = entry.plan.as_ref()?;
        let total = total_slots(plan);
        let left: u64 = (0..)
            .zip(&plan.partitions)
            .map(|(number, planned)| {
                slots_left(&planned.ranges, entry.partition(number).state.checkpoint)
            })
            .sum();
        (total > 0).then(|| Self { done: total.saturating_sub(left), total })
    }

    /// Returns the part that is done, from 0 to 1.
    pub fn share(self) -> f64 {
        self.done as f64 / self.total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::MessageId,
        ledger::{Checkpoint, NewEntry, Partition, PartitionState, Plan},
        plan::advance,
        slots::SlotRange,
        time::UnixMillis,
    };

    fn planned(partitions: Vec<Vec<SlotRange>>) -> Entry {
        Entry::begin(&NewEntry {
            message_id: MessageId::issue_named(&"a".parse().unwrap()),
            app: crate::app::AppKey::first("a".parse().unwrap()),
            accepted_at: UnixMillis(0),
            expires_at: UnixMillis(1),
            dedup_nonce: 0,
            keep_until: UnixMillis(1),
            plan: Some(Plan::of(crate::device::TransportKind::Mqtt, partitions)),
            claim: None,
            replaces: None,
            broadcast: None,
        })
    }

    fn range(shard: u32, from: u32, to: u32) -> SlotRange {
        SlotRange { shard, from, to }
    }

    fn move_to(entry: &mut Entry, number: u32, checkpoint: Checkpoint) {
        let state = PartitionState { checkpoint, ..PartitionState::default() };
        entry.partitions.insert(number, Partition { state, leftovers: Vec::new() });
    }

    #[test]
    fn a_broadcast_is_as_far_as_the_slots_behind_its_checkpoints() {
        let second = vec![range(1, 40, 100), range(2, 0, 40)];
        let mut entry = planned(vec![vec![range(0, 0, 100)], second.clone()]);
        assert_eq!(Progress::of(&entry), Some(Progress { done: 0, total: 200 }));
        let at = advance(&second, Checkpoint::START, Some(60));
        move_to(&mut entry, 1, at);
        assert_eq!(Progress::of(&entry).unwrap().done, 20);
        move_to(&mut entry, 1, advance(&second, at, None));
        assert_eq!(Progress::of(&entry).unwrap().done, 60);
        move_to(&mut entry, 1, Checkpoint::End);
        move_to(&mut entry, 0, Checkpoint::At { range: 0, offset: 50 });
        let progress = Progress::of(&entry).unwrap();
        assert_eq!((progress.done, progress.share()), (150, 0.75));
    }

    #[test]
    fn there_is_nothing_to_count_before_the_plan_and_for_named_devices() {
        let mut entry = planned(vec![vec![]]);
        assert_eq!(Progress::of(&entry), None);
        entry.plan = None;
        assert_eq!(Progress::of(&entry), None);
    }
}
