//! Forgetting what is closed of the oldest pages of the ledger.

use push_model::{
    ids::{InPage, MessageId},
    ledger::{may_be_forgotten, record},
    report,
    time::UnixMillis,
};
use rand::seq::SliceRandom;

use super::{
    lists::Listed,
    parts::{IN_FLIGHT, all_of, memory_usage, records_of},
};
use crate::{
    IndexError,
    redis::{RedisIndex, keys::named_page, ledger::rich, reply},
};

/// How many pages a round reads to forget them: some 50,000 entries at most.
const FORGOTTEN_PAGES: usize = 512;

/// How many entries with fields of a page a round reads.
const FORGOTTEN_ENTRIES: usize = 256;

/// What a round forgot.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// Pages that were looked at for it. What is open of them is at the end of the lists now.
    pub(super) pages: usize,
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl RedisIndex {
    /// Forgets what is closed of the oldest of these pages, until so many bytes are free.
    pub(super) async fn forget(
        &self,
        pages: &[&Listed],
        bytes: u64,
        now: UnixMillis,
    ) -> Result<Forgotten, IndexError> {
        let mut all = Forgotten::default();
        for pages in pages[..pages.len().min(FORGOTTEN_PAGES)].chunks(IN_FLIGHT) {
            if all.bytes >= bytes {
                break;
            }
            let ask = pages.iter().flat_map(|page| {
                let key = self.keys.part(page.part).page(&page.name);
                [(page.part, all_of(&key)), (page.part, memory_usage(&key))]
            });
            let mut answers = self.ask_parts(ask.collect()).await?.into_iter();
            for page in pages {
                if all.bytes >= bytes {
                    break;
                }
                let records = records_of(answers.next().unwrap_or_default())?;
                let usage = reply::number(answers.next().unwrap_or_default())?.unwrap_or(0);
                let (entries, of_entries) = self.forget_page(page, &records, now).await?;
                let count = records.len().max(1) as u64;
                all.bytes += of_entries + usage * entries.min(count) / count;
                all.entries += entries;
                all.pages += 1;
            }
        }
        Ok(all)
    }

    /// Forgets what is closed of a page: how many entries, and what those with fields took.
    async fn forget_page(
        &self,
        page: &Listed,
        records: &[(InPage, Vec<u8>)],
        now: UnixMillis,
    ) -> Result<(u64, u64), IndexError> {
        let named = named_page(page.part, &page.name).ok_or_else(wrong_name)?;
        let part = self.keys.part(page.part);
        let (mut closed, mut stubs) = (Vec::new(), Vec::new());
        let (mut rich, mut bytes) = (Vec::new(), 0);
        // Readers compare the time in the id, which may be a moment after the acceptance: without the
        // later of the two, the newest entry that was forgotten looks like a message that waits.
        let mut accepted = UnixMillis(0);
        for (field, record) in records {
            let message = MessageId::at(named, *field);
            let issued_at = message.time().unwrap_or_default();
            if !record::is_stub(record) {
                // One that cannot be read stays until its page is over.
                let Ok(front) = record::front(&message, record) else { continue };
                if front.state.is_ended() || now > front.expires_at.plus(report::REST) {
                    accepted = accepted.max(front.accepted_at).max(issued_at);
                    closed.push((field, record));
                }
                continue;
            }
            stubs.push((field, record, message, self.keys.message(&message).entry()));
        }
        // Ids can be made up, so a page can have any number of such entries.
        stubs.shuffle(&mut rand::rng());
        stubs.truncate(FORGOTTEN_ENTRIES);
        let asked = stubs
            .iter()
            .flat_map(|(_, _, _, key)| [(page.part, all_of(key)), (page.part, memory_usage(key))]);
        let mut answers = self.ask_parts(asked.collect()).await?.into_iter();
        for (field, record, message, key) in stubs {
            let (fields, usage) =
                (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
            let copy = match rich::read(&message, fields) {
                Ok(Some(entry)) if may_be_forgotten(&entry, now) => {
                    let issued_at = message.time().unwrap_or_default();
                    accepted = accepted.max(entry.accepted_at).max(issued_at);
                    entry.copy.map_or_else(String::new, |copy| copy.to_string())
                }
                Ok(None) => String::new(),
                Ok(Some(_)) | Err(_) => continue,
            };
            bytes += reply::number(usage)?.unwrap_or(0);
            rich.push((field, record, key, copy));
        }
        // No message was accepted later than now, whatever an id says.
        let accepted = accepted.min(now);
        let (page_key, list) = (part.page(&page.name), self.list(page.kind, page.part));
        let horizon = part.forgotten_until();
        let mut keys = vec![page_key.as_str(), &list, &horizon];
        keys.extend(rich.iter().map(|(_, _, key, _)| key.as_str()));
        let mut forget = self.scripts.forget.call(&keys);
        forget.arg(&page.element).arg(closed.len()).arg(accepted.0);
        for (field, record) in &closed {
            forget.arg(*field).arg(record.as_slice());
        }
        for (field, record, _, copy) in &rich {
            forget.arg(*field).arg(record.as_slice()).arg(copy);
        }
        let forgotten = reply::number(forget.run(&self.bulk).await?)?.unwrap_or(0);
        Ok((forgotten, bytes))
    }
}

fn wrong_name() -> IndexError {
    IndexError::Corrupt("the name of a page of the ledger".to_owned())
}
