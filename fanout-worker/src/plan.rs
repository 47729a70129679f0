//! How a broadcast is cut, and how far a strand is. Pure: no clock, no index, no queue.
//!
//! A broadcast becomes at most `max_strands` strands of about the same number of slots. Each is
//! worked off a turn at a time and goes back to the end of the task lane in between, so the lane
//! holds at most `max_strands` tasks of one broadcast however large it is, and broadcasts of any
//! size take turns.

use push_shared::{
    index::Slice,
    ledger::{Plan, Position},
};

/// Cuts an app's slots into strands of equal size, each at least `min_slots` unless it is all.
pub fn cut(extent: &[Slice], max_strands: usize, min_slots: u64) -> Plan {
    let total: u64 = extent.iter().map(|s| u64::from(slots(s))).sum();
    if total == 0 {
        return Plan { strands: Vec::new() };
    }
    let strands = total.div_ceil(min_slots.max(1)).clamp(1, max_strands.max(1) as u64);
    let per_strand = total.div_ceil(strands);
    let mut plan = Plan { strands: Vec::new() };
    let mut strand = Vec::new();
    let mut room = per_strand;
    for slice in extent {
        let mut from = slice.from;
        while from < slice.to {
            let left = u64::from(slice.to - from);
            // `room` is at most `left` in the second case, so it fits a u32.
            let to = if left <= room {
                slice.to
            } else {
                from.saturating_add(u32::try_from(room).unwrap_or(u32::MAX))
            };
            strand.push(Slice { shard: slice.shard, from, to });
            room -= u64::from(to - from);
            from = to;
            if room == 0 {
                plan.strands.push(std::mem::take(&mut strand));
                room = per_strand;
            }
        }
    }
    if !strand.is_empty() {
        plan.strands.push(strand);
    }
    plan
}

fn slots(slice: &Slice) -> u32 {
    slice.to.saturating_sub(slice.from)
}

/// The slots that a plan covers.
pub fn total_slots(plan: &Plan) -> u64 {
    plan.strands.iter().flatten().map(|s| u64::from(slots(s))).sum()
}

/// What is left of a strand of slices at this checkpoint: the rest of one slice, then the
/// others. `None` when nothing is left.
pub fn rest(slices: &[Slice], position: Position) -> Option<(Slice, &[Slice])> {
    if position == Position::END {
        return None;
    }
    let index = usize::try_from(position.0 >> 32).ok()?;
    let slot = u32::try_from(position.0 & u64::from(u32::MAX)).ok()?;
    let slice = slices.get(index)?;
    let from = slot.clamp(slice.from, slice.to);
    Some((Slice { from, ..*slice }, slices.get(index + 1..).unwrap_or_default()))
}

/// How many slots of a strand are left behind this checkpoint.
pub fn slots_left(slices: &[Slice], position: Position) -> u64 {
    rest(slices, position).map_or(0, |(part, others)| {
        std::iter::once(&part).chain(others).map(|slice| u64::from(slots(slice))).sum()
    })
}

/// The checkpoint after a page of a slice: at slot `next` of the same slice, or at the start of
/// the slice after it.
pub fn advance(slices: &[Slice], position: Position, next: Option<u32>) -> Position {
    let index = position.0 >> 32;
    match next {
        Some(slot) => Position(index << 32 | u64::from(slot)),
        None if index + 1 < slices.len() as u64 => Position((index + 1) << 32),
        None => Position::END,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(shard: u32, from: u32, to: u32) -> Slice {
        Slice { shard, from, to }
    }

    /// Walks a strand as a worker does, `page` slots at a time.
    fn walk(slices: &[Slice], page: u32) -> Vec<(u32, u32)> {
        let covered: u64 = slices.iter().map(|slice| u64::from(slots(slice))).sum();
        let mut seen = Vec::new();
        let mut position = Position::default();
        while let Some((part, _)) = rest(slices, position) {
            let end = part.to.min(part.from.saturating_add(page));
            assert_eq!(slots_left(slices, position), covered - seen.len() as u64);
            seen.extend((part.from..end).map(|slot| (part.shard, slot)));
            position = advance(slices, position, (end < part.to).then_some(end));
        }
        seen
    }

    #[test]
    fn every_slot_is_in_exactly_one_strand_and_is_walked_once_in_order() {
        let extent = [slice(0, 0, 100), slice(3, 0, 1), slice(9, 0, 57), slice(10, 0, 1000)];
        let all: Vec<(u32, u32)> =
            extent.iter().flat_map(|s| (s.from..s.to).map(|slot| (s.shard, slot))).collect();
        for max_strands in [1, 2, 3, 7, 64] {
            for min_slots in [1, 10, 500, 5000] {
                let plan = cut(&extent, max_strands, min_slots);
                assert!(plan.strands.len() <= max_strands);
                assert_eq!(total_slots(&plan), 1158);
                for page in [1, 7, 4096] {
                    let seen: Vec<_> = plan.strands.iter().flat_map(|s| walk(s, page)).collect();
                    assert_eq!(seen, all, "{max_strands} {min_slots} {page}");
                }
            }
        }
    }

    #[test]
    fn strands_differ_by_no_more_than_rounding() {
        let plan = cut(&[slice(0, 0, 1_000_003)], 16, 1);
        let sizes: Vec<u64> =
            plan.strands.iter().map(|s| s.iter().map(|s| u64::from(slots(s))).sum()).collect();
        assert_eq!(sizes.len(), 16);
        assert!(sizes.iter().all(|size| (62_488..=62_501).contains(size)), "{sizes:?}");
    }

    #[test]
    fn a_small_audience_is_one_strand_and_no_audience_is_none() {
        assert_eq!(cut(&[slice(0, 0, 9)], 16, 4096).strands.len(), 1);
        assert!(cut(&[], 16, 4096).strands.is_empty());
        assert!(cut(&[slice(0, 5, 5)], 16, 4096).strands.is_empty());
    }

    #[test]
    fn a_strand_that_does_not_start_at_slot_zero_starts_where_it_should() {
        let slices = [slice(2, 40, 50)];
        assert_eq!(rest(&slices, Position(0)).unwrap().0, slices[0]);
        assert_eq!(rest(&slices, Position::END), None);
        assert_eq!(rest(&[], Position(0)), None);
        assert_eq!(slots_left(&slices, Position(0)), 10);
        assert_eq!(slots_left(&slices, Position::END), 0);
    }
}
