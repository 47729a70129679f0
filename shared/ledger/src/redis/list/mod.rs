//! The list of an app's entries, newest first.
//!
//! Where each write happens. A worker begins an entry, and the script that begins it also adds it to the
//! lists of its app, in the stripe of its page, so that no push takes another request:
//! - `begin_records.lua` adds pages: one member for all entries of an app on a page;
//! - `begin_expanded.lua` adds the entry itself: a broadcast, or a push that found its page full;
//! - a step that keeps an entry longer keeps its lists as long, and changes none;
//! - `evict.lua` removes the members of what it evicts, when the page has no other entry that needs them;
//! - a recall changes no list, and pages expire without a trace there. A member whose entries are gone leads
//!   to nothing, and is removed when the list is full, or expires with the list;
//! - a list that is full (`pages.lua`) loses its oldest members. It keeps a mark of that, and entries as old
//!   as these are not reported from any stripe: the list ends there and has no gap.
//!
//! A list has at most a hundred members of 8 to 18 bytes, and an app six lists in each of 256 stripes. The
//! ledger's size counts 160 bytes for each page and app, which is more than its members take.
//!
//! A page of the list reads the first members of all lists ([`members`]), merges them by time ([`merge`]) and
//! reads the entries behind them ([`entries`]) until enough are known to be the newest. The bound of a page's
//! work is [`MOST_ELEMENTS`].

mod entries;
mod member;
mod members;
mod merge;

use async_trait::async_trait;
use push_model::{app::AppKey, ids::AppTag, ledger::ListPlace};
use push_store::IndexError;

pub(super) use self::member::{ListMember, kept_lists};
use self::merge::Merge;
use super::RedisLedger;
use crate::{EntryLists, EntryPage};

/// Members whose entries are read first, and the fewest that are read in a step.
const FIRST_ELEMENTS: usize = 16;

/// The most members whose entries are read in one step. Their pages take Redis about a millisecond.
const ELEMENTS_OF_STEP: usize = 64;

/// The most members of which a page reads the entries.
const MOST_ELEMENTS: usize = 128;

#[async_trait]
impl EntryLists for RedisLedger {
    async fn entries_before(
        &self,
        app: &AppKey,
        before: Option<ListPlace>,
        limit: usize,
    ) -> Result<EntryPage, IndexError> {
        if limit == 0 {
            return Ok(EntryPage { entries: Vec::new(), next: before });
        }
        let tag = AppTag::of(app);
        let mut lists = self.read_heads(tag, before.as_ref()).await?;
        let mut merge = Merge { before, limit, entries: Default::default() };
        let (mut read, mut chunk) = (0, FIRST_ELEMENTS);
        let (found, next) = loop {
            // What was read is the beginning of what is known then.
            let wanted = read + chunk;
            let elements = self.read_until_known(tag, before.as_ref(), &mut lists, wanted).await?;
            let some = elements.to_read(read, chunk);
            for (place, found, is_broadcast) in self.find(app, some).await? {
                if !elements.is_removed(is_broadcast, place.at) {
                    merge.add(place, found);
                }
            }
            read += some.len();
            chunk = merge.wanted(read).clamp(FIRST_ELEMENTS, ELEMENTS_OF_STEP);
            let next = elements.known.get(read).map(|element| element.latest).or(elements.unread);
            let Some(unread) = next else { break merge.page(None) };
            let is_over = read >= MOST_ELEMENTS && merge.has_progress(unread);
            if is_over || merge.is_full(unread) {
                break merge.page(Some(unread));
            }
        };
        Ok(EntryPage { entries: self.decode_found(app, found).await?, next })
    }
}
