//! Merges the lists of all stripes, and the entries behind their members, by time.

use std::collections::BTreeMap;

use push_model::{
    ledger::{Entry, ListPlace, record},
    time::UnixMillis,
};
use push_store::redis::keys::EntryList;

use super::member::{Target, parse};

/// What was read of one list of one stripe.
#[derive(Debug)]
pub(super) struct ListRead {
    pub(super) stripe: u8,
    pub(super) list: EntryList,
    /// Members that were read, those with the latest times first.
    pub(super) members: Vec<Vec<u8>>,
    /// The list may have more members than were read.
    pub(super) has_more: bool,
}

impl ListRead {
    pub(super) const fn unread(stripe: u8, list: EntryList) -> Self {
        Self { stripe, list, members: Vec::new(), has_more: true }
    }

    /// Adds the members that follow, of which at most `limit` were asked for.
    pub(super) fn add(&mut self, members: Vec<Vec<u8>>, limit: usize) {
        self.has_more = members.len() >= limit;
        self.members.extend(members);
    }

    /// The latest times of the members that were read; those in a form of a later version are left out.
    pub(super) fn times(&self) -> impl Iterator<Item = UnixMillis> {
        self.members.iter().filter_map(|member| Some(parse(self.list, member)?.0))
    }

    /// The latest time that a member which was not read can have.
    pub(super) fn last(&self) -> UnixMillis {
        let mut times = self.members.iter().rev().filter_map(|member| parse(self.list, member));
        times.next().map_or(UnixMillis(u64::MAX), |(last, _)| last)
    }

    fn is_broadcast(&self) -> bool {
        self.list == EntryList::Broadcasts
    }
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
    pub(super) fn of(lists: &[ListRead]) -> Self {
        let mut elements = Self::default();
        for list in lists {
            // The empty member.
            if list.members.last().is_some_and(Vec::is_empty) {
                let [named, broadcasts] = &mut elements.removed;
                let removed = if list.is_broadcast() { broadcasts } else { named };
                *removed = (*removed).max(Some(list.last()));
            }
        }
        for list in lists {
            let (stripe, is_broadcast) = (list.stripe, list.is_broadcast());
            let parsed = list.members.iter().filter_map(|member| parse(list.list, member));
            let parsed = parsed.filter(|(latest, _)| !elements.is_removed(is_broadcast, *latest));
            let parsed =
                parsed.map(|(latest, target)| Element { latest, stripe, is_broadcast, target });
            let known: Vec<_> = parsed.collect();
            elements.known.extend(known);
            if list.has_more && !elements.is_removed(is_broadcast, list.last()) {
                elements.unread = elements.unread.max(Some(list.last()));
            }
        }
        let unread = elements.unread;
        elements.known.retain(|element| unread.is_none_or(|unread| element.latest > unread));
        elements.known.sort_unstable_by_key(|element| std::cmp::Reverse(element.latest));
        elements
    }

    /// The elements to be read next, about `count`: all of one time together, because a page of the list needs
    /// none of them or all.
    pub(super) fn to_read(&self, read: usize, count: usize) -> &[Element] {
        let unread = self.known.get(read..).unwrap_or_default();
        let last = unread.get(..count).and_then(|some| some.last());
        let is_together =
            |element: &&Element| last.is_some_and(|last| element.latest == last.latest);
        let together = unread.iter().skip(count).take(count).take_while(is_together).count();
        unread.get(..count + together).unwrap_or(unread)
    }

    /// Returns true if an entry of this time is not reported, because older ones were removed.
    pub(super) fn is_removed(&self, is_broadcast: bool, at: UnixMillis) -> bool {
        let [named, broadcasts] = self.removed;
        let removed = if is_broadcast { broadcasts } else { named };
        removed.is_some_and(|removed| at <= removed)
    }
}

/// What was found of an entry.
#[derive(Debug)]
pub(super) enum Found {
    /// The record on its page, which is in this stripe.
    Record(u8, Vec<u8>),
    /// The entry.
    Entry(Box<Entry>),
}

impl Found {
    /// The stripe of an entry of which the stub was found.
    pub(super) fn stripe_of_stub(&self) -> Option<u8> {
        match self {
            Self::Record(stripe, record) if record::is_stub(record) => Some(*stripe),
            Self::Record(..) | Self::Entry(_) => None,
        }
    }
}

/// The entries that were found so far, and a page of them.
#[derive(Debug)]
pub(super) struct Merge {
    pub(super) before: Option<ListPlace>,
    pub(super) limit: usize,
    /// By place, so that an entry with two members counts once.
    pub(super) entries: BTreeMap<ListPlace, Found>,
}

/// What a page has, the newest first, and the place behind which the next page goes on.
pub(super) type FoundPage = (Vec<(ListPlace, Found)>, Option<ListPlace>);

impl Merge {
    pub(super) fn add(&mut self, place: ListPlace, found: Found) {
        if self.before.is_none_or(|before| place < before) {
            self.entries.insert(place, found);
        }
    }

    /// About how many more members lead to a whole page, if `read` of them led to what was found.
    pub(super) fn wanted(&self, read: usize) -> usize {
        let missing = self.limit.saturating_sub(self.entries.len());
        missing * read / self.entries.len().max(1)
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
    pub(super) fn page(mut self, unread: Option<UnixMillis>) -> FoundPage {
        let complete = unread.map(|unread| ListPlace::start_of(after(unread)));
        if let Some(complete) = &complete {
            self.entries = self.entries.split_off(complete);
        }
        let is_cut = self.entries.len() > self.limit;
        let found: Vec<_> = self.entries.into_iter().rev().take(self.limit).collect();
        let last = found.last().map(|(place, _)| *place).filter(|_| is_cut);
        (found, last.or(complete))
    }
}

fn after(time: UnixMillis) -> UnixMillis {
    UnixMillis(time.0.saturating_add(1))
}
