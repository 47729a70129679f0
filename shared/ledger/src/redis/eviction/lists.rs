//! The lists of the ledger's pages: of each stripe one for pages that began with a record, and one
//! for pages that began with an expanded entry, in the order in which the pages were begun. A page that
//! a round has read and that has entries left is in a third list, whose pages are read in turns.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use push_model::{
    ids::{LedgerPage, Window},
    time::UnixMillis,
};
use push_store::{
    IndexError,
    redis::{
        connection::reply,
        keys::{STRIPES, page_of_name, parse_listed_page},
    },
};
use tracing::warn;

use super::stripes::IN_FLIGHT;
use crate::redis::RedisLedger;

/// About how many pages a round reads from the heads of all lists together.
const HEADS: u64 = 2048;

/// The fewest and the most that it reads from one list.
const HEADS_OF_LIST: (u64, u64) = (8, 512);

/// Returns how many pages a round reads from the head of a list of this length, when all lists
/// together have `all`. A client can make up ids whose pages are all in one list.
fn heads(length: u64, all: u64) -> u64 {
    let (fewest, most) = HEADS_OF_LIST;
    (length.saturating_mul(HEADS) / all.max(1)).clamp(fewest, most)
}

/// An element of a list of pages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListedPage {
    /// When the page was begun.
    pub(super) begun: UnixMillis,
    /// The window of its ids; if they have none, the window in which the page was begun.
    pub(super) window: Window,
    pub(super) stripe: u8,
    pub(super) kind: ListKind,
    pub(super) element: String,
    pub(super) name: String,
}

/// The pages in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListKind {
    /// Pages that began with a record.
    Record,
    /// Pages that began with an expanded entry.
    Expanded,
    /// Pages that a round has read and that have entries left: open ones, and those of apps that hold no more
    /// than their share.
    Kept,
}

impl ListKind {
    pub(super) const ALL: [Self; 3] = [Self::Record, Self::Expanded, Self::Kept];
}

/// The lists of all stripes.
#[derive(Debug, Default)]
pub(super) struct PageLists {
    /// The lengths of the lists.
    pub(super) lengths: BTreeMap<(ListKind, u8), u64>,
    /// The pages at the heads of the lists that no round has read yet, the oldest first.
    pub(super) heads: Vec<ListedPage>,
    /// The pages at the heads of the lists of kept pages, the oldest first.
    pub(super) kept: Vec<ListedPage>,
    /// All pages that were read of some list had expired: more expired pages may follow them.
    pub(super) more: bool,
    /// Every unread page that was begun no later than this is in `heads`; none if all of them are.
    pub(super) complete_until: Option<UnixMillis>,
}

impl ListedPage {
    /// About when its oldest entry was accepted.
    pub(super) fn oldest(&self) -> UnixMillis {
        self.begun.min(self.window.next().start())
    }

    /// Parses an element of a list.
    fn read(kind: ListKind, stripe: u8, element: &[u8]) -> Option<Self> {
        let element = std::str::from_utf8(element).ok()?.to_owned();
        let (begun, name) = parse_listed_page(&element)?;
        let window = match page_of_name(stripe, name)? {
            LedgerPage::Shared(_, window, _) => window,
            LedgerPage::Own(_) => Window::of(begun),
        };
        let name = name.to_owned();
        Some(Self { begun, window, stripe, kind, element, name })
    }
}

impl RedisLedger {
    pub(super) fn list(&self, kind: ListKind, stripe: u8) -> String {
        let keys = self.keys.stripe(stripe);
        match kind {
            ListKind::Record => keys.pages(),
            ListKind::Expanded => keys.expanded_pages(),
            ListKind::Kept => keys.kept_pages(),
        }
    }

    /// Reads the lists, and removes expired pages from their heads.
    pub(super) async fn lists(&self) -> Result<PageLists, IndexError> {
        let lists = self.read_lists().await?;
        self.remove_expired(lists).await
    }

    /// Reads the lists. Elements that are no names of pages are removed.
    async fn read_lists(&self) -> Result<PageLists, IndexError> {
        let lists: Vec<(ListKind, u8)> = ListKind::ALL
            .into_iter()
            .flat_map(|kind| STRIPES.map(move |stripe| (kind, stripe)))
            .collect();
        let ask = lists.iter().map(|(kind, stripe)| {
            let mut length = redis::cmd("LLEN");
            length.arg(self.list(*kind, *stripe));
            (*stripe, length)
        });
        let (mut found, mut invalid) = (PageLists::default(), Vec::new());
        for (list, length) in lists.iter().zip(self.ask_stripes(ask.collect()).await?) {
            let length = reply::number(length)?.unwrap_or(0);
            if length > 0 {
                found.lengths.insert(*list, length);
            }
        }
        let all = found.lengths.values().sum();
        let lists: Vec<_> = found.lengths.iter().map(|(list, length)| (*list, *length)).collect();
        let ask = lists.iter().map(|((kind, stripe), length)| {
            let mut head = redis::cmd("LRANGE");
            head.arg(self.list(*kind, *stripe)).arg(0).arg(heads(*length, all) - 1);
            (*stripe, head)
        });
        let mut answers = self.ask_stripes(ask.collect()).await?.into_iter();
        for ((kind, stripe), length) in lists {
            let before = found.heads.len();
            for element in reply::list(answers.next().unwrap_or_default())? {
                let element = reply::bytes(element)?.unwrap_or_default();
                match ListedPage::read(kind, stripe, &element) {
                    Some(page) => found.heads.push(page),
                    None => invalid.push((self.list(kind, stripe), element)),
                }
            }
            let is_ordered = kind != ListKind::Kept && length > heads(length, all);
            let last = found.heads[before..].last().filter(|_| is_ordered);
            found.complete_until =
                found.complete_until.into_iter().chain(last.map(|page| page.begun)).min();
        }
        for (list, element) in invalid {
            warn!(
                runbook = "stored-records-cannot-be-read",
                list, "an element that is no name of a ledger page is removed from a list of pages"
            );
            self.remove_listed(&list, &element).await?;
        }
        Ok(found)
    }

    /// Removes the pages that have expired from the lists.
    async fn remove_expired(&self, mut found: PageLists) -> Result<PageLists, IndexError> {
        let exist = found.heads.iter().map(|page| {
            let mut exists = redis::cmd("EXISTS");
            exists.arg(self.keys.stripe(page.stripe).page(&page.name));
            (page.stripe, exists)
        });
        let exist = self.ask_stripes(exist.collect()).await?;
        let (mut there, mut expired) = (Vec::new(), Vec::new());
        for (page, exists) in found.heads.into_iter().zip(exist) {
            let list = if reply::number(exists)? == Some(0) { &mut expired } else { &mut there };
            list.push(page);
        }
        let all = found.lengths.values().sum();
        let mut expired_of: BTreeMap<(ListKind, u8), u64> = BTreeMap::new();
        for page in &expired {
            *expired_of.entry((page.kind, page.stripe)).or_default() += 1;
        }
        for (list, count) in expired_of {
            if let Some(length) = found.lengths.get_mut(&list) {
                found.more |= count == heads(*length, all);
                *length = length.saturating_sub(count);
            }
        }
        let remove = |page: ListedPage| async move {
            self.remove_listed(&self.list(page.kind, page.stripe), page.element.as_bytes()).await
        };
        let removals = stream::iter(expired).map(remove).buffer_unordered(IN_FLIGHT);
        removals.try_for_each(async |()| Ok(())).await?;
        there.sort();
        (found.kept, found.heads) =
            there.into_iter().partition(|page: &ListedPage| page.kind == ListKind::Kept);
        Ok(found)
    }

    /// Removes an element from a list.
    async fn remove_listed(&self, list: &str, element: &[u8]) -> Result<(), IndexError> {
        let mut remove = redis::cmd("LREM");
        remove.arg(list).arg(1).arg(element);
        self.bulk.command(&remove).await?;
        Ok(())
    }
}
