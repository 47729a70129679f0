//! How far a broadcast is, read off its ledger entry. Pure.
//!
//! How many devices a targeted message is for is known only at its end: `targeted` grows as the
//! partitions are worked off. What is known from the plan on is how many slots have to be looked at,
//! and the checkpoints say how many of these are behind.

use push_model::ledger::Entry;

use super::plan::{slots_left, total_slots};

/// The slots of a broadcast that are behind its checkpoints, of all that its plan covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Slots that are worked off.
    pub done: u64,
    /// Slots of the plan; more than 0.
    pub total: u64,
}

impl Progress {
    /// What the entry says. `None` where there are no slots to count: before the plan, and for
    /// named devices.
    pub fn of(entry: &Entry) -> Option<Self> {
        let plan = entry.plan.as_ref()?;
        let total = total_slots(plan);
        let left: u64 = (0..)
            .zip(&plan.partitions)
            .map(|(number, slices)| slots_left(slices, entry.partition(number).state.checkpoint))
            .sum();
        (total > 0).then(|| Self { done: total.saturating_sub(left), total })
    }

    /// Between 0 and 1.
    pub fn share(self) -> f64 {
        self.done as f64 / self.total as f64
    }
}

#[cfg(test)]
mod tests {
    use push_model::{
        ids::MessageId,
        ledger::{Checkpoint, Opened, Partition, PartitionState, Plan},
        slots::SlotRange,
        time::UnixMillis,
    };

    use super::*;
    use crate::delivery::plan::advance;

    fn planned(partitions: Vec<Vec<SlotRange>>) -> Entry {
        Entry::begin(&Opened {
            message_id: MessageId::issue(&"a".parse().unwrap()),
            app_id: "a".parse().unwrap(),
            accepted_at: UnixMillis(0),
            expires_at: UnixMillis(1),
            copy: 0,
            keep_until: UnixMillis(1),
            plan: Some(Plan { partitions }),
            claim: None,
            replaces: None,
        })
    }

    fn slice(shard: u32, from: u32, to: u32) -> SlotRange {
        SlotRange { shard, from, to }
    }

    fn move_to(entry: &mut Entry, number: u32, checkpoint: Checkpoint) {
        let state = PartitionState { checkpoint, ..PartitionState::default() };
        entry.partitions.insert(number, Partition { state, leftovers: Vec::new() });
    }

    #[test]
    fn a_broadcast_is_as_far_as_the_slots_behind_its_checkpoints() {
        let second = vec![slice(1, 40, 100), slice(2, 0, 40)];
        let mut entry = planned(vec![vec![slice(0, 0, 100)], second.clone()]);
        assert_eq!(Progress::of(&entry), Some(Progress { done: 0, total: 200 }));
        let at = advance(&second, Checkpoint::START, Some(60));
        move_to(&mut entry, 1, at);
        assert_eq!(Progress::of(&entry).unwrap().done, 20);
        move_to(&mut entry, 1, advance(&second, at, None));
        assert_eq!(Progress::of(&entry).unwrap().done, 60);
        move_to(&mut entry, 1, Checkpoint::End);
        move_to(&mut entry, 0, Checkpoint::At { slice: 0, offset: 50 });
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
