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
//! A page of the list reads the heads of all lists in one request, merges their members by time ([`merge`])
//! and reads pages until enough entries are known to be the newest. The bound of a page's work is
//! [`MOST_ELEMENTS`].

mod member;
mod merge;

use std::collections::BTreeSet;

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    ids::{AppTag, AudienceKind, LedgerPage, MessageId, PageField},
    ledger::{Entry, ListPlace, record},
};
use push_store::{
    IndexError,
    redis::{
        connection::reply,
        keys::{EntryList, STRIPES},
    },
};
use redis::{Cmd, Value};

pub(super) use self::member::{ListMember, kept_lists};
use self::{
    member::{Target, bound, message_of},
    merge::{Element, Elements, ListRead, Merge},
};
use super::{
    RedisLedger,
    eviction::{all_of, records_of},
    expanded,
    records::record_of,
    stored_entry::decode,
};
use crate::{EntryLists, EntryPage};

/// Members that are read of each list first. If they do not suffice, all are.
const FIRST_MEMBERS: usize = 8;

/// More members than a list has.
const ALL_MEMBERS: usize = 256;

/// Members whose entries are read first; twice as many each time after.
const FIRST_ELEMENTS: usize = 16;

/// The most members of which a page reads the entries.
const MOST_ELEMENTS: usize = 1024;

/// A page of the ledger has fewer entries, so that one step scans all.
const MOST_SCANNED: usize = 1024;

/// The request for the members of a list that are below a bound, the greatest first.
fn members_below(key: &str, bound: Option<&[u8]>, limit: usize) -> Cmd {
    let mut read = redis::cmd("ZREVRANGEBYLEX");
    read.arg(key);
    match bound {
        Some(bound) => read.arg([b"(", bound].concat()),
        None => read.arg("+"),
    };
    read.arg("-").arg("LIMIT").arg(0).arg(limit);
    read
}

/// The request for the records of an app on a page.
fn records_of_app(page: &str, AppTag(tag): AppTag) -> Cmd {
    let mut pattern = b"??????".to_vec();
    for byte in tag {
        if b"*?[]^-\\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    let mut scan = redis::cmd("HSCAN");
    scan.arg(page).arg(0).arg("MATCH").arg(pattern).arg("COUNT").arg(MOST_SCANNED);
    scan
}

impl RedisLedger {
    /// Reads the heads of all lists of an app.
    async fn read_heads(
        &self,
        app: AppTag,
        before: Option<&ListPlace>,
    ) -> Result<Vec<ListRead>, IndexError> {
        let mut reads = Vec::new();
        for stripe in STRIPES {
            reads.extend(EntryList::all().map(|list| {
                let members = Vec::new();
                ListRead { stripe, list, members, has_more: true }
            }));
        }
        self.read_more(app, before, &mut reads, FIRST_MEMBERS).await?;
        Ok(reads)
    }

    /// Reads further members of the lists that have more.
    async fn read_more(
        &self,
        app: AppTag,
        before: Option<&ListPlace>,
        reads: &mut [ListRead],
        limit: usize,
    ) -> Result<(), IndexError> {
        let unread: Vec<&mut ListRead> = reads.iter_mut().filter(|read| read.has_more).collect();
        let ask = unread.iter().map(|read| {
            let key = self.keys.stripe(read.stripe).entry_list(read.list, app);
            let first = || before.map(|before| bound(read.list, before));
            let bound = read.members.last().cloned().or_else(first);
            (read.stripe, members_below(&key, bound.as_deref(), limit))
        });
        let answers = self.ask_stripes(ask.collect()).await?;
        for (read, answer) in unread.into_iter().zip(answers) {
            let mut members = Vec::new();
            for member in reply::list(answer)? {
                members.push(reply::bytes(member)?.unwrap_or_default());
            }
            read.has_more = members.len() >= limit;
            read.members.extend(members);
        }
        Ok(())
    }

    /// Reads the entries behind members.
    async fn entries_of(
        &self,
        app: &AppKey,
        elements: &[Element],
    ) -> Result<Vec<(Entry, bool)>, IndexError> {
        let (tag, mut ask) = (AppTag::of(app), Vec::new());
        let mut pages = BTreeSet::new();
        for Element { stripe, is_broadcast, target, .. } in elements {
            match target {
                Target::Page(window, bits) if pages.insert((*stripe, *window, *bits)) => {
                    let page = self.keys.stripe(*stripe).named_page(*window, *bits);
                    ask.push((*stripe, records_of_app(&page, tag)));
                }
                Target::Page(..) => {}
                Target::Entry(place) => {
                    let keys = self.keys.message(app, &message_of(app, place.id));
                    let mut get = redis::cmd("HGET");
                    get.arg(&keys.page).arg(&keys.field.0);
                    ask.push((*stripe, get));
                    ask.push((*stripe, all_of(&keys.expanded_entry())));
                }
            }
            debug_assert!(!is_broadcast || matches!(target, Target::Entry(_)));
        }
        let mut answers = self.ask_stripes(ask).await?.into_iter();
        let (mut entries, mut stubs) = (Vec::new(), Vec::new());
        let mut pages = BTreeSet::new();
        for Element { stripe, is_broadcast, target, .. } in elements {
            match target {
                Target::Page(window, bits) if pages.insert((*stripe, *window, *bits)) => {
                    let [a, b] = *bits;
                    let page = LedgerPage::Shared(AudienceKind::Named, *window, [*stripe, a, b]);
                    for (field, record) in scanned(answers.next().unwrap_or_default())? {
                        let message = MessageId::from_page(page, field).for_app(app);
                        if record::is_stub(&record) {
                            stubs.push((*stripe, message));
                        } else if let Ok(entry) = decode(&app.id, &message, &record) {
                            entries.push((entry, false));
                        }
                    }
                }
                Target::Page(..) => {}
                Target::Entry(place) => {
                    let record = record_of(answers.next().unwrap_or_default())?;
                    let fields = answers.next().unwrap_or_default();
                    let message = message_of(app, place.id);
                    let entry = match record {
                        Some(record) if !record::is_stub(&record) => {
                            decode(&app.id, &message, &record).ok()
                        }
                        _ => expanded_of(app, &message, fields),
                    };
                    // A message that was begun anew has a later member as well.
                    let entry = entry.filter(|entry| ListPlace::of_entry(entry) == *place);
                    entries.extend(entry.map(|entry| (entry, *is_broadcast)));
                }
            }
        }
        let ask = stubs.iter().map(|(stripe, message)| {
            (*stripe, all_of(&self.keys.message(app, message).expanded_entry()))
        });
        let answers = self.ask_stripes(ask.collect()).await?;
        for ((_, message), fields) in stubs.iter().zip(answers) {
            entries.extend(expanded_of(app, message, fields).map(|entry| (entry, false)));
        }
        Ok(entries)
    }
}

/// Reads the answer to [`records_of_app`].
fn scanned(answer: Value) -> Result<Vec<(PageField, Vec<u8>)>, IndexError> {
    let mut parts = reply::list(answer)?.into_iter();
    records_of(parts.nth(1).unwrap_or_else(|| Value::Array(Vec::new())))
}

/// An expanded entry of this app; none if it is gone, or a later version wrote it.
fn expanded_of(app: &AppKey, message: &MessageId, fields: Value) -> Option<Entry> {
    let entry = expanded::read(message, fields).ok().flatten();
    entry.filter(|entry| entry.app_id == app.id)
}

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
        let mut reads = self.read_heads(tag, before.as_ref()).await?;
        let mut elements = Elements::of(&reads);
        let mut merge = Merge { before, limit, entries: Default::default() };
        let (mut read, mut chunk) = (0, FIRST_ELEMENTS);
        loop {
            if read == elements.known.len() && elements.unread.is_some() {
                // What was read is the beginning of what there is.
                self.read_more(tag, before.as_ref(), &mut reads, ALL_MEMBERS).await?;
                elements = Elements::of(&reads);
            }
            let end = elements.known.len().min(read.saturating_add(chunk));
            let some = elements.known.get(read..end).unwrap_or_default();
            for (entry, is_broadcast) in self.entries_of(app, some).await? {
                let at = ListPlace::of_entry(&entry).at;
                if !elements.is_removed(is_broadcast, at) {
                    merge.add(entry);
                }
            }
            (read, chunk) = (end, chunk * 2);
            let next = elements.known.get(read).map(|element| element.latest).or(elements.unread);
            let Some(unread) = next else { return Ok(merge.page(None)) };
            let is_over = read >= MOST_ELEMENTS && merge.has_progress(unread);
            if is_over || merge.is_full(unread) {
                return Ok(merge.page(Some(unread)));
            }
        }
    }
}
