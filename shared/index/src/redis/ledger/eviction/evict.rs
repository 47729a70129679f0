//! Evicting the closed entries of the oldest pages of the ledger.

use push_model::{
    ids::{MessageId, PageField},
    ledger::{eviction_mark, is_eviction_remembered, may_be_evicted, record},
    report,
    time::UnixMillis,
};
use rand::seq::SliceRandom;

use super::{
    lists::ListedPage,
    stripes::{IN_FLIGHT, all_of, memory_usage, records_of, sample_of},
};
use crate::{
    IndexError,
    redis::{RedisIndex, connection::reply, keys::page_of_name, ledger::expanded},
};

/// The most pages from which a round evicts: about 50,000 entries.
const EVICTED_PAGES: usize = 512;

/// The most expanded entries that a round reads of a page.
const EXPANDED_ENTRIES: usize = 256;

/// What a round evicted.
#[derive(Debug, Default)]
pub(super) struct Evicted {
    /// Pages that were read for it. Those with open entries are at the end of their lists now.
    pub(super) pages: usize,
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl RedisIndex {
    /// Evicts the closed entries of the oldest of these pages, until so many bytes are free.
    pub(super) async fn evict(
        &self,
        pages: &[&ListedPage],
        bytes: u64,
        now: UnixMillis,
    ) -> Result<Evicted, IndexError> {
        let mut all = Evicted::default();
        for pages in pages[..pages.len().min(EVICTED_PAGES)].chunks(IN_FLIGHT) {
            if all.bytes >= bytes {
                break;
            }
            let ask = pages.iter().flat_map(|page| {
                let key = self.keys.stripe(page.stripe).page(&page.name);
                let [count, sample] = sample_of(&key);
                [count, sample, memory_usage(&key)].map(|command| (page.stripe, command))
            });
            let mut answers = self.ask_stripes(ask.collect()).await?.into_iter();
            for page in pages {
                if all.bytes >= bytes {
                    break;
                }
                let all_of_page = reply::number(answers.next().unwrap_or_default())?.unwrap_or(0);
                let records = records_of(answers.next().unwrap_or_default())?;
                let usage = reply::number(answers.next().unwrap_or_default())?.unwrap_or(0);
                let (entries, of_entries) = self.evict_page(page, &records, now).await?;
                let count = all_of_page.max(records.len() as u64).max(1);
                all.bytes += of_entries + usage * entries.min(count) / count;
                all.entries += entries;
                all.pages += 1;
            }
        }
        Ok(all)
    }

    /// Evicts the closed entries of a page. Returns how many, and the memory of the expanded ones.
    async fn evict_page(
        &self,
        page: &ListedPage,
        records: &[(PageField, Vec<u8>)],
        now: UnixMillis,
    ) -> Result<(u64, u64), IndexError> {
        let named = page_of_name(page.stripe, &page.name).ok_or_else(wrong_name)?;
        let stripe = self.keys.stripe(page.stripe);
        let (mut closed, mut stubs) = (Vec::new(), Vec::new());
        let (mut evicted, mut bytes) = (Vec::new(), 0);
        let mut marks = Vec::new();
        // The later of the time of acceptance and the time in the id. Readers compare the time in
        // the id, which may be a moment after the acceptance: with the earlier one, the newest
        // evicted entry would be taken for a message that waits for a worker.
        let mut accepted = UnixMillis(0);
        for (field, record) in records {
            let message = MessageId::from_page(named, *field);
            let issued_at = message.time().unwrap_or_default();
            if !record::is_stub(record) {
                // A record that cannot be read stays until its page expires.
                let Ok(preamble) = record::preamble(&message, record) else { continue };
                if preamble.state.is_ended()
                    || now > preamble.expires_at.plus(report::OVERDUE_AFTER)
                {
                    accepted = accepted.max(preamble.accepted_at).max(issued_at);
                    if preamble.state.is_ended() && is_eviction_remembered(preamble.expires_at, now)
                    {
                        marks.push(eviction_mark(&message, preamble.dedup_nonce));
                    }
                    closed.push((field, record));
                }
                continue;
            }
            stubs.push((field, record, message, self.keys.message(&message).expanded_entry()));
        }
        // A client can make up ids that share a page, so a page can have any number of such
        // entries.
        stubs.shuffle(&mut rand::rng());
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
                    let issued_at = message.time().unwrap_or_default();
                    accepted = accepted.max(entry.accepted_at).max(issued_at);
                    if let Some(dedup_nonce) = entry.dedup_nonce
                        && entry.is_closed()
                        && entry.expires_at.is_some_and(|at| is_eviction_remembered(at, now))
                    {
                        marks.push(eviction_mark(&message, dedup_nonce));
                    }
                    entry
                        .dedup_nonce
                        .map_or_else(String::new, |dedup_nonce| dedup_nonce.to_string())
                }
                Ok(None) => String::new(),
                Ok(Some(_)) | Err(_) => continue,
            };
            bytes += reply::number(usage)?.unwrap_or(0);
            evicted.push((field, record, key, dedup_nonce));
        }
        // The time in an id that a client made up may be in the future.
        let accepted = accepted.min(now);
        let (page_key, list) = (stripe.page(&page.name), self.list(page.kind, page.stripe));
        let evicted_until = stripe.evicted_until();
        let mut keys = vec![page_key.as_str(), &list, &evicted_until];
        keys.extend(evicted.iter().map(|(_, _, key, _)| key.as_str()));
        self.add_marks(&stripe, &marks).await?;
        let mut evict = self.scripts.evict.call(&keys);
        evict.arg(&page.element).arg(closed.len()).arg(accepted.0);
        for (field, record) in &closed {
            evict.arg(*field).arg(record.as_slice());
        }
        for (field, record, _, dedup_nonce) in &evicted {
            evict.arg(*field).arg(record.as_slice()).arg(dedup_nonce);
        }
        let count = reply::number(evict.run(&self.bulk).await?)?.unwrap_or(0);
        Ok((count, bytes))
    }
}

fn wrong_name() -> IndexError {
    IndexError::Corrupt("the name of a page of the ledger".to_owned())
}
