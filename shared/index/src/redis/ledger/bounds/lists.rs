//! The lists of the ledger's pages, in the order in which the pages were begun.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use push_model::{
    ids::{Page, Window},
    time::UnixMillis,
};
use tracing::warn;

use super::parts::IN_FLIGHT;
use crate::{
    IndexError,
    redis::{
        RedisIndex,
        keys::{PARTS, listed_page, named_page},
        reply,
    },
};

/// How many pages a round looks at from the head of each list.
const HEADS: usize = 8;

/// A page of the ledger, as a list has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed {
    /// When it was begun, or when what is open of it was left behind.
    pub(super) begun: UnixMillis,
    /// The window of its ids; where they say nothing of it, the one in which the page was begun.
    pub(super) window: Window,
    pub(super) part: u8,
    pub(super) kind: Kind,
    pub(super) element: String,
    pub(super) name: String,
}

/// What a page began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Record,
    Fields,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Record, Self::Fields];
}

/// The lists of all parts.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// How long they are.
    pub(super) lengths: BTreeMap<(Kind, u8), u64>,
    /// Their heads, the oldest first.
    pub(super) heads: Vec<Listed>,
    /// Redis had forgotten all pages at the head of some list: behind them there may be more.
    pub(super) more: bool,
    /// Every page that was begun no later than this is among the heads; none if every page is.
    pub(super) seen: Option<UnixMillis>,
}

impl Listed {
    /// Reads what a list says of a page.
    fn read(kind: Kind, part: u8, element: &[u8]) -> Option<Self> {
        let element = std::str::from_utf8(element).ok()?.to_owned();
        let (begun, name) = listed_page(&element)?;
        let window = match named_page(part, name)? {
            Page::Shared(_, window, _) => window,
            Page::Own(_) => Window::of(begun),
        };
        let name = name.to_owned();
        Some(Self { begun, window, part, kind, element, name })
    }
}

impl RedisIndex {
    pub(super) fn list(&self, kind: Kind, part: u8) -> String {
        let keys = self.keys.part(part);
        match kind {
            Kind::Record => keys.pages(),
            Kind::Fields => keys.rich_pages(),
        }
    }

    /// Reads the lists, and takes off their heads what Redis forgot.
    pub(super) async fn lists(&self) -> Result<Lists, IndexError> {
        let lists: Vec<(Kind, u8)> =
            Kind::ALL.into_iter().flat_map(|kind| PARTS.map(move |part| (kind, part))).collect();
        let ask = lists.iter().flat_map(|(kind, part)| {
            let list = self.list(*kind, *part);
            let (mut length, mut head) = (redis::cmd("LLEN"), redis::cmd("LRANGE"));
            length.arg(&list);
            head.arg(&list).arg(0).arg(HEADS - 1);
            [(*part, length), (*part, head)]
        });
        let mut answers = self.ask_parts(ask.collect()).await?.into_iter();
        let (mut found, mut strange) = (Lists::default(), Vec::new());
        for (kind, part) in lists {
            let length = reply::number(answers.next().unwrap_or_default())?.unwrap_or(0);
            found.lengths.insert((kind, part), length);
            let before = found.heads.len();
            for element in reply::list(answers.next().unwrap_or_default())? {
                let element = reply::bytes(element)?.unwrap_or_default();
                match Listed::read(kind, part, &element) {
                    Some(page) => found.heads.push(page),
                    None => strange.push((self.list(kind, part), element)),
                }
            }
            let last = found.heads[before..].last().filter(|_| length > HEADS as u64);
            found.seen = found.seen.into_iter().chain(last.map(|page| page.begun)).min();
        }
        for (list, element) in strange {
            warn!(list, "what is no name of a page of the ledger is taken off a list of them");
            self.strike(&list, &element).await?;
        }
        let exist = found.heads.iter().map(|page| {
            let mut exists = redis::cmd("EXISTS");
            exists.arg(self.keys.part(page.part).page(&page.name));
            (page.part, exists)
        });
        let exist = self.ask_parts(exist.collect()).await?;
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        for (page, exists) in found.heads.into_iter().zip(exist) {
            let list = if reply::number(exists)? == Some(0) { &mut gone } else { &mut there };
            list.push(page);
        }
        let mut gone_of: BTreeMap<(Kind, u8), usize> = BTreeMap::new();
        for page in &gone {
            *gone_of.entry((page.kind, page.part)).or_default() += 1;
        }
        found.more = gone_of.values().any(|count| *count == HEADS);
        for (list, count) in gone_of {
            if let Some(length) = found.lengths.get_mut(&list) {
                *length = length.saturating_sub(count as u64);
            }
        }
        let strike = |page: Listed| async move {
            self.strike(&self.list(page.kind, page.part), page.element.as_bytes()).await
        };
        let strikes = stream::iter(gone).map(strike).buffer_unordered(IN_FLIGHT);
        strikes.try_for_each(async |()| Ok(())).await?;
        there.sort();
        found.heads = there;
        Ok(found)
    }

    /// Takes an element off a list.
    async fn strike(&self, list: &str, element: &[u8]) -> Result<(), IndexError> {
        let mut strike = redis::cmd("LREM");
        strike.arg(list).arg(1).arg(element);
        self.bulk.command(&strike).await?;
        Ok(())
    }
}
