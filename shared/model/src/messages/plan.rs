//! Cuts a broadcast into partitions, and computes the rest of a partition. Pure: no clock, no
//! index, no queue.
//!
//! Each carrier of a broadcast's devices (a transport, or a lane of Web Push) has its own partitions, so that a slow
//! or dead one delays only its own devices. There are at most `most` of them, of about the same number of
//! slots. A partition goes back to the end of the task lane after each run. So the lane holds at
//! most `most` tasks for each broadcast and carrier, however large the broadcast is, and
//! broadcasts of any size take turns.

use crate::{
    device::Carrier,
    ledger::{Checkpoint, Plan, PlannedPartition},
    slots::SlotRange,
};

/// The most bytes that the first tasks of a broadcast take together, unless one task for each
/// carrier takes more.
pub const FIRST_TASKS_BYTES: u64 = 2 * 1024 * 1024;

/// The most bytes that a task takes beside its job and its plan.
const REST_OF_A_TASK: u64 = 256;

/// The most bytes that a slot range of a plan takes in a task.
const BYTES_OF_A_RANGE: u64 = 48;

/// The most bytes that a partition of a plan takes in a task: its carrier, and the range that it
/// shares with the next partition.
const BYTES_OF_A_PARTITION: u64 = BYTES_OF_A_RANGE + 16;

/// Returns the most partitions of each carrier with which the first tasks of a broadcast stay
/// within [`FIRST_TASKS_BYTES`]: at least 1, and no more than `most`.
fn affordable(most: usize, carriers: usize, ranges: usize, job_bytes: u64) -> usize {
    let first_tasks = |of_each: usize| {
        let tasks = of_each.saturating_mul(carriers);
        let (tasks, ranges) = (tasks as u64, ranges as u64);
        let partitions = BYTES_OF_A_PARTITION.saturating_mul(tasks);
        let plan = BYTES_OF_A_RANGE.saturating_mul(ranges).saturating_add(partitions);
        let task = job_bytes.saturating_add(plan).saturating_add(REST_OF_A_TASK);
        task.saturating_mul(tasks)
    };
    (2..=most).rev().find(|of_each| first_tasks(*of_each) <= FIRST_TASKS_BYTES).unwrap_or(1)
}

/// Cuts the slots of each carrier's devices into at most `most` partitions of equal size, each of
/// at least `min_slots` slots unless it is the only one of its carrier; fewer if the job is large
/// ([`FIRST_TASKS_BYTES`]). The partitions of different carriers alternate, so that the first
/// tasks of all of them come early in the lane.
pub fn cut(
    extents: &[(Carrier, &[SlotRange])],
    most: usize,
    min_slots: u64,
    job_bytes: u64,
) -> Plan {
    let ranges = extents.iter().map(|(_, extent)| extent.len()).sum();
    let most = affordable(most, extents.len(), ranges, job_bytes);
    let of_each = extents.iter().map(|(carrier, extent)| {
        let cut = cut_one(extent, most, min_slots).into_iter();
        cut.map(move |ranges| PlannedPartition { carrier: Some(*carrier), ranges })
    });
    let mut of_each: Vec<_> = of_each.collect();
    let mut partitions = Vec::new();
    loop {
        let before = partitions.len();
        partitions.extend(of_each.iter_mut().filter_map(Iterator::next));
        if partitions.len() == before {
            return Plan { partitions };
        }
    }
}

/// Cuts the slots of one carrier's devices.
fn cut_one(extent: &[SlotRange], most: usize, min_slots: u64) -> Vec<Vec<SlotRange>> {
    let total: u64 = extent.iter().map(|s| u64::from(slots(s))).sum();
    let mut all = Vec::new();
    if total == 0 {
        return all;
    }
    let partitions = total.div_ceil(min_slots.max(1)).clamp(1, most.max(1) as u64);
    let per_partition = total.div_ceil(partitions);
    let mut partition = Vec::new();
    let mut room = per_partition;
    for range in extent {
        let mut from = range.from;
        while from < range.to {
            let left = u64::from(range.to - from);
            // `room` is at most `left` in the second case, so it fits a u32.
            let to = if left <= room {
                range.to
            } else {
                from.saturating_add(u32::try_from(room).unwrap_or(u32::MAX))
            };
            partition.push(SlotRange { shard: range.shard, from, to });
            room -= u64::from(to - from);
            from = to;
            if room == 0 {
                all.push(std::mem::take(&mut partition));
                room = per_partition;
            }
        }
    }
    if !partition.is_empty() {
        all.push(partition);
    }
    all
}

fn slots(range: &SlotRange) -> u32 {
    range.to.saturating_sub(range.from)
}

/// Counts the slots that a plan covers.
pub fn total_slots(plan: &Plan) -> u64 {
    let ranges = plan.partitions.iter().flat_map(|partition| &partition.ranges);
    ranges.map(|s| u64::from(slots(s))).sum()
}

/// Returns the rest of a partition from this checkpoint on: the rest of one slot range, and the
/// ranges after it. `None` when nothing is left.
pub fn rest(ranges: &[SlotRange], checkpoint: Checkpoint) -> Option<(SlotRange, &[SlotRange])> {
    let Checkpoint::At { range: index, offset } = checkpoint else { return None };
    let index = usize::try_from(index).ok()?;
    let range = ranges.get(index)?;
    // A range that ends before it begins (no version cuts one) counts as empty.
    let from = offset.max(range.from).min(range.to);
    Some((SlotRange { from, ..*range }, ranges.get(index + 1..).unwrap_or_default()))
}

/// Counts the slots of a partition that are left after this checkpoint.
pub fn slots_left(ranges: &[SlotRange], checkpoint: Checkpoint) -> u64 {
    rest(ranges, checkpoint).map_or(0, |(range, others)| {
        std::iter::once(&range).chain(others).map(|range| u64::from(slots(range))).sum()
    })
}

/// Returns the checkpoint after a part of a slot range was read: at slot `next` of the same range,
/// or at the start of the next range.
pub fn advance(ranges: &[SlotRange], checkpoint: Checkpoint, next: Option<u32>) -> Checkpoint {
    let Checkpoint::At { range, .. } = checkpoint else { return Checkpoint::End };
    match next {
        Some(offset) => Checkpoint::At { range, offset },
        None if u64::from(range) + 1 < ranges.len() as u64 => {
            Checkpoint::At { range: range + 1, offset: 0 }
        }
        None => Checkpoint::End,
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        device::TransportKind,
        envelope::{PartitionTask, Task, Work, encode_alone},
    };

    use super::*;

    /// Cuts the slots of an app with one carrier.
    fn cut(extent: &[SlotRange], most: usize, min_slots: u64) -> Plan {
        super::cut(&[(Carrier::default(), extent)], most, min_slots, 0)
    }

    #[test]
    fn the_first_tasks_of_a_large_message_take_no_more_than_their_bound() {
        let golden = include_bytes!("../../tests/golden/task-v1.json");
        let Task { job, work: Work::Partition(task), .. } = Task::decode(golden).unwrap() else {
            panic!("a task of a partition")
        };
        let job_bytes = encode_alone(&job).unwrap().len() as u64;
        let nonce = u64::MAX;
        let first = PartitionTask { nonce, parent: 0, continues: None, unsaved: None, ..task };
        let first = Work::Partition(first);
        let counts = |carriers: usize, job_kib: u64| {
            let extent: Vec<SlotRange> = (0..64).map(|shard| range(shard, 0, 1_000_000)).collect();
            let all = Carrier::ALL.into_iter().take(carriers);
            let extents: Vec<_> = all.map(|carrier| (carrier, &*extent)).collect();
            let plan = super::cut(&extents, 32, 4096, job_kib * 1024);
            assert_eq!(total_slots(&plan), 64_000_000 * carriers as u64);
            let partitions = plan.partitions.len();
            let task = Task { plan: Some(plan), work: first.clone(), job: job.clone() };
            let task = task.encode().unwrap().len() as u64 - job_bytes + job_kib * 1024;
            let all = task.saturating_mul(partitions as u64);
            assert!(partitions <= carriers || all <= FIRST_TASKS_BYTES, "{all}");
            partitions
        };
        assert_eq!([1, 2, 3].map(|carriers| counts(carriers, 1)), [32, 64, 96], "all of them");
        assert_eq!([16, 64, 128, 256, 512].map(|kib| counts(1, kib)), [32, 29, 15, 7, 3]);
        assert_eq!([16, 64, 128, 256, 512].map(|kib| counts(2, kib)), [64, 28, 14, 6, 2]);
        assert_eq!(counts(13, 512), 13, "each carrier keeps one of its own");
        assert_eq!(counts(13, u64::MAX >> 20), 13);
    }

    #[test]
    fn each_carrier_has_its_own_partitions_which_alternate() {
        use TransportKind::{Fcm, Mqtt};
        let (many, few) = ([range(0, 0, 100)], [range(0, 3, 9)]);
        let carriers = [(Mqtt.into(), &many[..]), (Fcm.into(), &few[..])];
        let plan = super::cut(&carriers, 3, 10, 0);
        let kinds = plan.partitions.iter().flat_map(|planned| planned.carrier).map(Carrier::kind);
        assert_eq!(kinds.collect::<Vec<_>>(), [Mqtt, Fcm, Mqtt, Mqtt]);
        assert_eq!(plan.partitions[1].ranges, few);
        assert_eq!(total_slots(&plan), 106);
    }

    fn range(shard: u32, from: u32, to: u32) -> SlotRange {
        SlotRange { shard, from, to }
    }

    /// Walks a partition as a worker does, `most_slots` slots at a time.
    fn walk(ranges: &[SlotRange], most_slots: u32) -> Vec<(u32, u32)> {
        let covered: u64 = ranges.iter().map(|range| u64::from(slots(range))).sum();
        let mut seen = Vec::new();
        let mut checkpoint = Checkpoint::START;
        while let Some((range, _)) = rest(ranges, checkpoint) {
            let end = range.to.min(range.from.saturating_add(most_slots));
            assert_eq!(slots_left(ranges, checkpoint), covered - seen.len() as u64);
            seen.extend((range.from..end).map(|slot| (range.shard, slot)));
            checkpoint = advance(ranges, checkpoint, (end < range.to).then_some(end));
        }
        seen
    }

    #[test]
    fn every_slot_is_in_exactly_one_partition_and_is_walked_once_in_order() {
        let extent = [range(0, 0, 100), range(3, 0, 1), range(9, 0, 57), range(10, 0, 1000)];
        let all: Vec<(u32, u32)> =
            extent.iter().flat_map(|s| (s.from..s.to).map(|slot| (s.shard, slot))).collect();
        for most in [1, 2, 3, 7, 64] {
            for min_slots in [1, 10, 500, 5000] {
                let plan = cut(&extent, most, min_slots);
                assert!(plan.partitions.len() <= most);
                assert_eq!(total_slots(&plan), 1158);
                for most_slots in [1, 7, 4096] {
                    let seen: Vec<_> =
                        plan.partitions.iter().flat_map(|p| walk(&p.ranges, most_slots)).collect();
                    assert_eq!(seen, all, "{most} {min_slots} {most_slots}");
                }
            }
        }
    }

    #[test]
    fn partitions_differ_by_no_more_than_rounding() {
        let plan = cut(&[range(0, 0, 1_000_003)], 16, 1);
        let sizes: Vec<u64> = plan
            .partitions
            .iter()
            .map(|p| p.ranges.iter().map(|s| u64::from(slots(s))).sum())
            .collect();
        assert_eq!(sizes.len(), 16);
        assert!(sizes.iter().all(|size| (62_488..=62_501).contains(size)), "{sizes:?}");
    }

    #[test]
    fn a_small_audience_is_one_partition_and_no_audience_is_none() {
        assert_eq!(cut(&[range(0, 0, 9)], 16, 4096).partitions.len(), 1);
        assert!(cut(&[], 16, 4096).partitions.is_empty());
        assert!(cut(&[range(0, 5, 5)], 16, 4096).partitions.is_empty());
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_empty() {
        let ranges = [range(0, 10, 5), range(1, 0, 4)];
        assert_eq!(walk(&ranges, 10), [(1, 0), (1, 1), (1, 2), (1, 3)]);
        assert_eq!(slots_left(&ranges, Checkpoint::START), 4);
    }

    #[test]
    fn a_partition_that_does_not_start_at_slot_zero_starts_where_it_should() {
        let ranges = [range(2, 40, 50)];
        assert_eq!(rest(&ranges, Checkpoint::START).unwrap().0, ranges[0]);
        assert_eq!(rest(&ranges, Checkpoint::End), None);
        assert_eq!(rest(&[], Checkpoint::START), None);
        assert_eq!(slots_left(&ranges, Checkpoint::START), 10);
        assert_eq!(slots_left(&ranges, Checkpoint::End), 0);
    }
}
