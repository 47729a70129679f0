//! Merges the lists of all stripes, and the entries behind their members, by time.

use std::collections::BTreeMap;

use push_model::{
    ledger::{Entry, ListPlace},
    time::UnixMillis,
};
use push_store::redis::keys::EntryList;

use super::member::{Target, parse};
use crate::EntryPage;

/// What was read of one list of one stripe.
#[derive(Debug)]
pub(super) struct ListRead {
    pub(super) stripe: u8,
    pub(super) list: EntryList,
    /// Members that were read, those with the latest times first.
    pub(super) members: Vec<Vec<u8>>,
    /// The list has more members than were read.
    pub(super) has_more: bool,
}

/// A member, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    /// The latest time that its entries can have.
    pub(super) latest: UnixMillis,
    pub(super) stripe: u8,
    pub(super) is_broadcast: bool,
    pub(super) target: Target,
}

/// The members of all lists as far as they are known to be complete.
#[derive(Debug, Default)]
pub(super) struct Elements {
    /// Sorted by their latest times, the newest first.
    pub(super) known: Vec<Element>,
    /// Members that were not read have no entries after this; none if all were read.
    pub(super) unread: Option<UnixMillis>,
    /// Older members of pushes to named devices were removed, of broadcasts: entries up to then are not
    /// reported, because they are not complete.
    removed: [Option<UnixMillis>; 2],
}

impl Elements {
    pub(super) fn of(reads: &[ListRead]) -> Self {
        let mut elements = Self::default();
        for ListRead { stripe, list, members, has_more } in reads {
            let is_broadcast = *list == EntryList::Broadcasts;
            let parsed = members.iter().filter_map(|member| parse(*list, member));
            let mut last = None;
            for (latest, target) in parsed {
                last = Some(latest);
                let element = Element { latest, stripe: *stripe, is_broadcast, target };
                elements.known.push(element);
            }
            // The empty member.
            if members.last().is_some_and(Vec::is_empty) {
                let [named, broadcasts] = &mut elements.removed;
                let removed = if is_broadcast { broadcasts } else { named };
                *removed = (*removed).max(Some(last.unwrap_or(UnixMillis(u64::MAX))));
            }
            if *has_more {
                elements.unread = elements.unread.max(last);
            }
        }
        let (unread, removed) = (elements.unread, elements.removed);
        elements.known.retain(|element| {
            unread.is_none_or(|unread| element.latest > unread)
                && !is_removed(removed, element.is_broadcast, element.latest)
        });
        elements.known.sort_unstable_by_key(|element| std::cmp::Reverse(element.latest));
        elements
    }

    pub(super) fn is_removed(&self, is_broadcast: bool, at: UnixMillis) -> bool {
        is_removed(self.removed, is_broadcast, at)
    }
}

fn is_removed(
    [named, broadcasts]: [Option<UnixMillis>; 2],
    is_broadcast: bool,
    at: UnixMillis,
) -> bool {
    let removed = if is_broadcast { broadcasts } else { named };
    removed.is_some_and(|removed| at <= removed)
}

/// The entries that were read so far, and a page of them.
#[derive(Debug)]
pub(super) struct Merge {
    pub(super) before: Option<ListPlace>,
    pub(super) limit: usize,
    /// By place, so that an entry with two members counts once.
    pub(super) entries: BTreeMap<ListPlace, Entry>,
}

impl Merge {
    pub(super) fn add(&mut self, entry: Entry) {
        let place = ListPlace::of_entry(&entry);
        if self.before.is_none_or(|before| place < before) {
            self.entries.insert(place, entry);
        }
    }

    /// Returns true if there is a whole page of entries newer than `unread`, the latest time that
    /// entries which were not read can have.
    pub(super) fn is_full(&self, unread: UnixMillis) -> bool {
        let newer = self.entries.range(ListPlace::start_of(after(unread))..);
        newer.take(self.limit).count() >= self.limit
    }

    /// Returns true if a page that ends here leads further than where it began.
    pub(super) fn has_progress(&self, unread: UnixMillis) -> bool {
        self.before.is_none_or(|before| ListPlace::start_of(after(unread)) < before)
    }

    /// The page, if the entries that were not read are no newer than `unread`; none if all were read.
    pub(super) fn page(mut self, unread: Option<UnixMillis>) -> EntryPage {
        let complete = unread.map(|unread| ListPlace::start_of(after(unread)));
        if let Some(complete) = &complete {
            self.entries = self.entries.split_off(complete);
        }
        let is_cut = self.entries.len() > self.limit;
        let entries: Vec<_> = self.entries.into_values().rev().take(self.limit).collect();
        let last = entries.last().map(ListPlace::of_entry).filter(|_| is_cut);
        EntryPage { next: last.or(complete), entries }
    }
}

fn after(time: UnixMillis) -> UnixMillis {
    UnixMillis(time.0.saturating_add(1))
}
