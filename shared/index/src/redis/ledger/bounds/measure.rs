//! What the pages of the ledger take, estimated from some of them.

use push_model::{ids::MessageId, ledger::record};
use rand::{
    RngExt,
    seq::{IndexedRandom, SliceRandom},
};

use super::{
    lists::{Kind, Lists},
    parts::{all_of, memory_usage, records_of},
};
use crate::{
    IndexError,
    redis::{
        RedisIndex,
        keys::{PARTS, listed_page, named_page},
        reply,
    },
};

/// How many pages of a kind are measured, and entries with fields of a page.
const MEASURED: usize = 256;
const MEASURED_ENTRIES: usize = 8;

impl RedisIndex {
    /// What a page of this kind takes on average, from some of them, with their entries with fields.
    pub(super) async fn measure(&self, kind: Kind, lists: &Lists) -> Result<u64, IndexError> {
        let parts: Vec<(u8, u64)> = PARTS
            .filter_map(|part| Some((part, *lists.lengths.get(&(kind, part))?)))
            .filter(|(_, length)| *length > 0)
            .collect();
        let places = some_of(&parts);
        if places.is_empty() {
            return Ok(0);
        }
        let ask = places.iter().map(|(part, at)| {
            let mut look = redis::cmd("LINDEX");
            look.arg(self.list(kind, *part)).arg(*at);
            (*part, look)
        });
        let elements = self.ask_parts(ask.collect()).await?;
        let mut pages = Vec::with_capacity(places.len());
        for ((part, _), element) in places.iter().zip(elements) {
            let element = reply::bytes(element)?.unwrap_or_default();
            let element = String::from_utf8_lossy(&element);
            let name = listed_page(&element).map(|(_, name)| name.to_owned());
            pages.extend(name.map(|name| (*part, name)));
        }
        let ask = pages
            .iter()
            .map(|(part, name)| (*part, memory_usage(&self.keys.part(*part).page(name))));
        let mut bytes: u64 = 0;
        for usage in self.ask_parts(ask.collect()).await? {
            bytes += reply::number(usage)?.unwrap_or(0);
        }
        // A page of records has entries with fields as well: of pushes that are tried again.
        bytes += self.measure_entries(&pages).await?;
        Ok(bytes / pages.len().max(1) as u64)
    }

    /// What the entries with fields of these pages take, from some of each.
    async fn measure_entries(&self, pages: &[(u8, String)]) -> Result<u64, IndexError> {
        let ask =
            pages.iter().map(|(part, name)| (*part, all_of(&self.keys.part(*part).page(name))));
        // Of each page how many entries it has, and how many of them are measured.
        let (mut counts, mut chosen) = (Vec::new(), Vec::new());
        for ((part, name), answer) in pages.iter().zip(self.ask_parts(ask.collect()).await?) {
            let Some(page) = named_page(*part, name) else { continue };
            let mut entries: Vec<String> = Vec::new();
            for (field, record) in records_of(answer)? {
                if record::is_stub(&record) {
                    entries.push(self.keys.message(&MessageId::at(page, field)).entry());
                }
            }
            entries.shuffle(&mut rand::rng());
            counts.push((entries.len(), entries.len().min(MEASURED_ENTRIES)));
            chosen.extend(entries.into_iter().take(MEASURED_ENTRIES).map(|entry| (*part, entry)));
        }
        let ask = chosen.into_iter().map(|(part, entry)| (part, memory_usage(&entry)));
        let mut usages = self.ask_parts(ask.collect()).await?.into_iter();
        let mut bytes = 0;
        for (entries, measured) in counts {
            let mut sum = 0;
            for usage in usages.by_ref().take(measured) {
                sum += reply::number(usage)?.unwrap_or(0);
            }
            bytes += sum * entries as u64 / measured.max(1) as u64;
        }
        Ok(bytes)
    }
}

/// Places in lists of these lengths: all, or a random sample of [`MEASURED`].
fn some_of(lists: &[(u8, u64)]) -> Vec<(u8, u64)> {
    let total: u64 = lists.iter().map(|(_, length)| length).sum();
    if total <= MEASURED as u64 {
        return lists
            .iter()
            .flat_map(|(part, length)| (0..*length).map(|at| (*part, at)))
            .collect();
    }
    let mut rng = rand::rng();
    let mut drawn = Vec::with_capacity(MEASURED);
    for _ in 0..MEASURED {
        if let Ok((part, length)) = lists.choose_weighted(&mut rng, |(_, length)| *length) {
            drawn.push((*part, rng.random_range(0..*length)));
        }
    }
    drawn
}
