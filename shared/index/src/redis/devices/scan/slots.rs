//! The slots of a block that match what was looked at so far.

use super::{
    criteria::Column,
    table::{MATCH, Table},
};

/// Slots to which all criteria are applied before the next slots are looked at, so that the slots
/// that are left stay in the processor's nearest cache.
pub(super) const BLOCK: usize = 4096;

/// The slots of a block that match the criteria applied so far.
pub(super) struct Slots {
    /// Before the first criterion: all slots from the first to before the second.
    all: Option<(u16, u16)>,
    /// After it: the first `count` of these, in order.
    left: [u16; BLOCK],
    count: usize,
    /// The values of all slots that were looked at, ORed.
    pub(super) seen: u8,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { all: None, left: [0; BLOCK], count: 0, seen: 0 }
    }

    /// Begins with all slots of a block.
    pub(super) fn begin(&mut self, from: u16, to: u16) {
        self.all = Some((from, to));
    }

    /// The slots that are left, after the first criterion.
    pub(super) fn left(&self) -> &[u16] {
        &self.left[..self.count]
    }

    /// Keeps those slots that were kept before and are before this one.
    pub(super) fn keep_before(&mut self, end: usize) {
        let kept = &self.left[..self.count];
        self.count = kept.partition_point(|slot| usize::from(*slot) < end);
    }

    /// Keeps the slots whose value is [`MATCH`]. The loops do not branch on the value, because a
    /// processor cannot predict which slots match.
    pub(super) fn keep(&mut self, value_of: impl Fn(usize) -> u8) {
        let mut kept = 0;
        let mut look = |left: &mut [u16; BLOCK], slot: u16| {
            let value = value_of(usize::from(slot));
            self.seen |= value;
            left[kept] = slot;
            kept += usize::from(value == MATCH);
        };
        if let Some((from, to)) = self.all.take() {
            (from..to).for_each(|slot| look(&mut self.left, slot));
        } else {
            for at in 0..self.count {
                let slot = self.left[at];
                look(&mut self.left, slot);
            }
        }
        self.count = kept;
    }

    /// Keeps the slots that match.
    pub(super) fn keep_by(&mut self, table: &Table, column: &Column<'_>) {
        let Column { low, high } = column;
        match table.narrow() {
            Some(narrow) if high.is_empty() => self.keep(|slot| narrow[usize::from(low[slot])]),
            _ => self.keep(|slot| {
                let high = high.get(slot).copied().unwrap_or(0);
                table.value_of(u16::from_be_bytes([high, low[slot]]))
            }),
        }
    }

    /// Keeps those slots that are left for which `values_of` gives [`MATCH`]. It gets the slots, and a place for the
    /// value of each; what it returns are the values that it has seen, ORed.
    pub(super) fn keep_where(&mut self, values_of: impl FnOnce(&[u16], &mut [u8]) -> u8) {
        if self.all.is_some() {
            self.keep(|_| MATCH);
        }
        let mut values = [0; BLOCK];
        let values = &mut values[..self.count];
        self.seen |= values_of(&self.left[..self.count], values);
        let mut kept = 0;
        for (at, value) in values.iter().enumerate() {
            self.left[kept] = self.left[at];
            kept += usize::from(*value == MATCH);
        }
        self.count = kept;
    }
}
