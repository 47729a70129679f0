//! Estimates how many devices are left of a partition. Pure.
//!
//! The plan says how many slots are left, but not how many of them hold a device of the audience.
//! The run knows the share for the slots that it read, so it assumes the same share for the rest.
//! It never assumes zero: a partition with slots left is not finished.

use push_model::{
    ledger::{Checkpoint, Leftover, leftover},
    plan::slots_left,
    slots::SlotRange,
};

/// The devices that a run leaves of its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remaining {
    /// Nothing is known that the list of open broadcasts does not have, or the partition is another
    /// worker's.
    Unknown,
    /// So many devices.
    Devices(u32),
    /// Nothing, because the message was recalled.
    Recalled,
}

/// The part of a partition that a run has read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadByRun {
    pub(crate) from: Checkpoint,
    /// The checkpoint at which it ended.
    pub(crate) to: Checkpoint,
    /// The devices of the audience that it found in between.
    pub(crate) found: u64,
}

/// Returns how many devices are left: an estimate of those not read yet, and the leftovers. None if
/// the run has read nothing from which to estimate.
pub(crate) fn remaining_devices(
    ranges: &[SlotRange],
    read: ReadByRun,
    leftovers: &[Leftover],
) -> Option<u32> {
    let slots = slots_left(ranges, read.to);
    let passed = slots_left(ranges, read.from).saturating_sub(slots);
    let unread = match (slots, passed) {
        (0, _) => 0,
        (_, 0) => return None,
        (slots, passed) => {
            let all = u128::from(slots) * (u128::from(read.found) + 1);
            u64::try_from(all.div_ceil(u128::from(passed) + 1)).unwrap_or(u64::MAX)
        }
    };
    let left = unread.saturating_add(leftover::count(leftovers));
    Some(u32::try_from(left).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use push_model::time::UnixMillis;

    use super::*;

    const RANGES: [SlotRange; 2] =
        [SlotRange { shard: 0, from: 0, to: 1000 }, SlotRange { shard: 1, from: 0, to: 1000 }];

    fn left(from: u32, to: Checkpoint, found: u64) -> Option<u32> {
        let from = Checkpoint::At { range: 0, offset: from };
        remaining_devices(&RANGES, ReadByRun { from, to, found }, &[])
    }

    #[test]
    fn the_rest_of_the_slots_is_assumed_to_be_like_those_that_the_run_read() {
        let half = Checkpoint::At { range: 1, offset: 0 };
        assert_eq!(left(1, half, 999), Some(1000));
        assert_eq!(left(1, half, 99), Some(100));
        assert_eq!(left(0, Checkpoint::End, 5), Some(0));
    }

    #[test]
    fn a_partition_with_slots_left_is_never_taken_for_finished() {
        assert_eq!(left(0, Checkpoint::At { range: 1, offset: 999 }, 0), Some(1));
    }

    #[test]
    fn a_run_that_read_nothing_says_nothing_but_how_many_are_to_be_tried_again() {
        assert_eq!(left(7, Checkpoint::At { range: 0, offset: 7 }, 0), None);
        let leftover = Leftover {
            due_at: UnixMillis(0),
            attempt: 1,
            unanswered: 0,
            throttled: 0,
            clients: ["a", "b"].map(|id| id.parse().unwrap()).to_vec(),
        };
        let read = ReadByRun { from: Checkpoint::End, to: Checkpoint::End, found: 0 };
        assert_eq!(remaining_devices(&RANGES, read, &[leftover]), Some(2));
    }
}
