//! Evicting the oldest closed entries of the apps that hold more than their share.

use std::collections::{BTreeMap, BTreeSet};

use push_model::{
    ids::{AppTag, LedgerPage, MessageId, PageField},
    ledger::{eviction_mark, is_eviction_remembered, may_be_evicted, record},
    report,
    time::UnixMillis,
};
use push_store::{
    IndexError,
    redis::{
        connection::reply,
        keys::{StripeKeys, page_of_name},
    },
};

use super::{
    lists::ListedPage,
    stripes::{IN_FLIGHT, all_of, memory_usage, read_page, records_of},
};
use crate::redis::{RedisLedger, expanded, list::ListMember};

/// The most expanded entries that a round reads of a page.
const EXPANDED_ENTRIES: usize = 256;

/// The result of an eviction round.
#[derive(Debug, Default)]
pub(super) struct Evicted {
    /// Pages that were read for it.
    pub(super) pages: usize,
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// When the oldest page was begun that was read and has entries left.
    pub(super) left: Option<UnixMillis>,
}

/// The entries of a page to be evicted.
#[derive(Debug, Default)]
struct Chosen<'a> {
    /// Records with their fields.
    closed: Vec<(PageField, &'a [u8])>,
    /// Stubs, each with its field, the key of the expanded entry, and the deduplication nonce there.
    expanded: Vec<(PageField, &'a [u8], String, String)>,
    /// The latest of the times of acceptance. Readers compare the time in the id, which may be a moment
    /// after the acceptance: with the earlier of the two, the newest evicted entry would be taken for a
    /// message that waits for a worker.
    accepted: BTreeMap<AppTag, UnixMillis>,
    /// The memory of the expanded entries.
    bytes: BTreeMap<AppTag, u64>,
    /// The members of lists of entries that lead to them, by the app, each with what the page no longer has
    /// when the member leads to nothing.
    members: BTreeSet<(AppTag, ListMember, Vec<u8>)>,
    /// Marks of entries that are closed before their messages have expired.
    marks: Vec<u64>,
}

impl Chosen<'_> {
    fn accepted(&mut self, message: &MessageId, field: PageField, at: UnixMillis) {
        let latest = self.accepted.entry(field.app()).or_default();
        *latest = at.max(message.time().unwrap_or_default()).max(*latest);
    }

    /// Notes the members that lead to an entry.
    fn listed(&mut self, page: LedgerPage, field: PageField, at: UnixMillis, is_stub: bool) {
        let members = ListMember::of_evicted(page, field, at, is_stub);
        self.members.extend(members.map(|(member, gone)| (field.app(), member, gone)));
    }

    /// Returns how many entries of an app are chosen.
    fn count(&self, app: AppTag) -> u64 {
        let records = self.closed.iter().map(|(field, _)| field);
        let stubs = self.expanded.iter().map(|(field, ..)| field);
        records.chain(stubs).filter(|field| field.app() == app).count() as u64
    }
}

impl RedisLedger {
    /// Evicts closed entries of these pages, one page after the other, until the apps have lost what
    /// they have in excess.
    pub(super) async fn evict(
        &self,
        pages: &[&ListedPage],
        excess: &mut BTreeMap<AppTag, u64>,
        now: UnixMillis,
    ) -> Result<Evicted, IndexError> {
        let mut all = Evicted::default();
        for pages in pages.chunks(IN_FLIGHT) {
            if excess.is_empty() {
                break;
            }
            let ask = pages.iter().flat_map(|page| {
                let key = self.keys.stripe(page.stripe).page(&page.name);
                read_page(&key).map(|command| (page.stripe, command))
            });
            let mut answers = self.ask_stripes(ask.collect()).await?.into_iter();
            for page in pages {
                if excess.is_empty() {
                    break;
                }
                let records = records_of(answers.next().unwrap_or_default())?;
                let usage = reply::number(answers.next().unwrap_or_default())?.unwrap_or(0);
                let chosen = self.choose(page, &records, excess, now).await?;
                let (evicted, is_left) = self.evict_chosen(page, &chosen, now).await?;
                for app in chosen.accepted.keys() {
                    let of_records = usage * chosen.count(*app) / records.len().max(1) as u64;
                    let bytes = of_records + chosen.bytes.get(app).copied().unwrap_or(0);
                    all.bytes += bytes;
                    if let Some(more) = excess.get_mut(app) {
                        *more = more.saturating_sub(bytes);
                    }
                }
                excess.retain(|_, more| *more > 0);
                all.entries += evicted;
                all.pages += 1;
                if is_left {
                    all.left = all.left.into_iter().chain([page.oldest()]).min();
                }
            }
        }
        Ok(all)
    }

    /// Chooses the entries of a page that may be evicted and whose apps have something in excess.
    async fn choose<'a>(
        &self,
        page: &ListedPage,
        records: &'a [(PageField, Vec<u8>)],
        excess: &BTreeMap<AppTag, u64>,
        now: UnixMillis,
    ) -> Result<Chosen<'a>, IndexError> {
        let named = page_of_name(page.stripe, &page.name).ok_or_else(wrong_name)?;
        let keys = self.keys.stripe(page.stripe);
        let (mut chosen, mut stubs) = (Chosen::default(), Vec::new());
        for (field, record) in records.iter().filter(|(field, _)| excess.contains_key(&field.app()))
        {
            let message = MessageId::from_page(named, *field);
            if record::is_stub(record) {
                stubs.push((*field, record, message, keys.expanded_entry(named, *field)));
                continue;
            }
            // A record that cannot be read stays until its page expires.
            let Ok(preamble) = record::preamble(&message, record) else { continue };
            if preamble.state.is_ended() || now > preamble.expires_at.plus(report::OVERDUE_AFTER) {
                chosen.accepted(&message, *field, preamble.accepted_at);
                chosen.listed(named, *field, preamble.accepted_at, false);
                if preamble.state.is_ended() && is_eviction_remembered(preamble.expires_at, now) {
                    chosen.marks.push(eviction_mark(&message, preamble.dedup_nonce));
                }
                chosen.closed.push((*field, record));
            }
        }
        stubs.truncate(EXPANDED_ENTRIES);
        let asked = stubs.iter().flat_map(|(_, _, _, key)| {
            [(page.stripe, all_of(key)), (page.stripe, memory_usage(key))]
        });
        let mut answers = self.ask_stripes(asked.collect()).await?.into_iter();
        for (field, record, message, key) in stubs {
            let (fields, usage) =
                (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
            let dedup_nonce = match expanded::read(&message, fields) {
                Ok(Some(entry)) if may_be_evicted(&entry, now) => {
                    chosen.accepted(&message, field, entry.accepted_at);
                    chosen.listed(named, field, entry.accepted_at, true);
                    if let Some(dedup_nonce) = entry.dedup_nonce
                        && entry.is_closed()
                        && entry.expires_at.is_some_and(|at| is_eviction_remembered(at, now))
                    {
                        chosen.marks.push(eviction_mark(&message, dedup_nonce));
                    }
                    entry.dedup_nonce.map_or_else(String::new, |nonce| nonce.to_string())
                }
                Ok(None) => String::new(),
                Ok(Some(_)) | Err(_) => continue,
            };
            *chosen.bytes.entry(field.app()).or_default() += reply::number(usage)?.unwrap_or(0);
            chosen.expanded.push((field, record, key, dedup_nonce));
        }
        Ok(chosen)
    }

    /// Evicts what was chosen of a page, and puts the page at the end of the list of kept pages if it
    /// has entries left. Returns how many entries were evicted, and whether some are left.
    async fn evict_chosen(
        &self,
        page: &ListedPage,
        chosen: &Chosen<'_>,
        now: UnixMillis,
    ) -> Result<(u64, bool), IndexError> {
        let stripe = self.keys.stripe(page.stripe);
        let (page_key, list) = (stripe.page(&page.name), self.list(page.kind, page.stripe));
        let (kept, evicted_until) = (stripe.kept_pages(), stripe.evicted_until());
        let mut keys = vec![page_key.as_str(), &list, &kept, &evicted_until];
        keys.extend(chosen.expanded.iter().map(|(_, _, key, _)| key.as_str()));
        let mut lists = BTreeMap::<String, Vec<(&[u8], &[u8])>>::new();
        for (app, ListMember { list, member }, gone) in &chosen.members {
            let list = StripeKeys::entry_list_of(&page_key, *list, *app);
            lists.entry(list).or_default().push((gone, member));
        }
        keys.extend(lists.keys().map(String::as_str));
        self.add_marks(&stripe, &chosen.marks).await?;
        let mut evict = self.scripts.evict.call(&keys);
        evict.arg(&page.element).arg(chosen.accepted.len()).arg(chosen.closed.len());
        evict.arg(lists.len());
        for (app, accepted) in &chosen.accepted {
            // The time in an id that a client made up may be in the future.
            evict.arg(&app.0).arg((*accepted).min(now).0);
        }
        for (field, record) in &chosen.closed {
            evict.arg(&field.0).arg(*record);
        }
        for (field, record, _, dedup_nonce) in &chosen.expanded {
            evict.arg(&field.0).arg(*record).arg(dedup_nonce);
        }
        for members in lists.values() {
            evict.arg(members.len());
            for (gone, member) in members {
                evict.arg(*gone).arg(*member);
            }
        }
        let mut answer = reply::list(evict.run(&self.bulk).await?)?.into_iter();
        let mut next = || reply::number(answer.next().unwrap_or_default());
        Ok((next()?.unwrap_or(0), next()? == Some(1)))
    }
}

fn wrong_name() -> IndexError {
    IndexError::Corrupt("the name of a page of the ledger".to_owned())
}
