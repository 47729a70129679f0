//! The decisions which entries wait and which group goes, apart from any task.

use std::collections::VecDeque;

use crate::{Limits, Refused, Size, Work};

/// A queue shorter than this is not swept for abandoned entries.
pub(crate) const MIN_SWEEP_LEN: usize = 64;

/// The entries that wait, and a count of those in flight.
pub(crate) struct GroupQueue<W: Work> {
    waiting: VecDeque<W::Entry>,
    /// The size of all that waits.
    size: Size,
    /// At this length the queue is swept: abandoned entries are removed. The next sweep is at twice
    /// the length that remains, so that sweeping costs little for each entry.
    sweep_len: usize,
    /// Items in flight.
    items: usize,
    /// Groups in flight, including one that is about to take its entries.
    groups: usize,
    /// A group was started and has not taken its entries yet.
    is_starting: bool,
    /// Entries are taken.
    pub(crate) is_open: bool,
}

impl<W: Work> Default for GroupQueue<W> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            size: Size::default(),
            sweep_len: MIN_SWEEP_LEN,
            items: 0,
            groups: 0,
            is_starting: false,
            is_open: true,
        }
    }
}

impl<W: Work> GroupQueue<W> {
    pub(crate) fn waiting_items(&self) -> usize {
        self.size.items
    }

    #[cfg(test)]
    pub(crate) fn waiting_entries(&self) -> usize {
        self.waiting.len()
    }

    /// Checks that one more entry may wait, so that no more than `most` items wait then.
    pub(crate) fn check(&self, entry: Size, most: usize) -> Result<(), Refused> {
        if !self.is_open {
            return Err(Refused::Closed);
        }
        if self.size.items.saturating_add(entry.items) > most {
            return Err(Refused::Full);
        }
        Ok(())
    }

    pub(crate) fn append(&mut self, entry: W::Entry) {
        let Size { items, bytes } = W::size(&entry);
        self.size.items += items;
        self.size.bytes += bytes;
        self.waiting.push_back(entry);
    }

    /// Removes abandoned entries if the queue has grown long.
    pub(crate) fn sweep(&mut self) {
        if self.waiting.len() < self.sweep_len {
            return;
        }
        let size = &mut self.size;
        self.waiting.retain(|entry| {
            let is_abandoned = W::is_abandoned(entry);
            if is_abandoned {
                let Size { items, bytes } = W::size(entry);
                size.items -= items;
                size.bytes -= bytes;
            }
            !is_abandoned
        });
        self.sweep_len = (2 * self.waiting.len()).max(MIN_SWEEP_LEN);
    }

    /// Empties the queue.
    pub(crate) fn take_all(&mut self) -> VecDeque<W::Entry> {
        self.size = Size::default();
        std::mem::take(&mut self.waiting)
    }

    /// Returns true if what waits is enough for a group: as much as is in flight, or as a group can
    /// hold, or all that will come.
    fn is_due(&self, limits: &Limits) -> bool {
        let Some(first) = self.waiting.front() else { return false };
        self.size.items >= self.items.clamp(1, limits.group.items)
            || self.size.bytes >= limits.group.bytes
            || W::goes_at_once(first)
            || !self.is_open
    }

    /// Returns true if another group should start now.
    pub(crate) fn may_start(&self, limits: &Limits) -> bool {
        !self.is_starting && self.groups < limits.groups && self.is_due(limits)
    }

    pub(crate) fn begin_start(&mut self) {
        self.is_starting = true;
        self.groups += 1;
    }

    pub(crate) fn end_start(&mut self) {
        self.is_starting = false;
    }

    /// Takes the next group within its limits, and the number of its items, if one is due.
    pub(crate) fn take_group(&mut self, limits: &Limits) -> Option<(Vec<W::Entry>, usize)> {
        if !self.is_due(limits) {
            return None;
        }
        let most = limits.group;
        let mut group = Vec::with_capacity(self.waiting.len().min(most.items));
        let mut taken = Size::default();
        while taken.items < most.items
            && let Some(entry) = self.waiting.front()
        {
            let Size { items, bytes } = W::size(entry);
            let fits = taken.items + items <= most.items && taken.bytes + bytes <= most.bytes;
            let is_abandoned = W::is_abandoned(entry);
            if !is_abandoned && !group.is_empty() && !fits {
                break;
            }
            let entry = self.waiting.pop_front();
            self.size.items -= items;
            self.size.bytes -= bytes;
            if !is_abandoned {
                taken.items += items;
                taken.bytes += bytes;
                group.extend(entry);
            }
        }
        if group.is_empty() {
            return None;
        }
        self.items += taken.items;
        Some((group, taken.items))
    }

    /// Takes the items of a group that ended out of the count.
    pub(crate) fn end_group(&mut self, items: usize) {
        self.items -= items;
    }

    /// Takes a place out of the count.
    pub(crate) fn leave(&mut self) {
        self.groups -= 1;
    }

    /// Returns true if nothing waits, is in flight, or will come.
    pub(crate) fn is_drained(&self) -> bool {
        !self.is_open && self.groups == 0 && self.waiting.is_empty()
    }
}
