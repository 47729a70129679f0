//! The memory that the pages of the ledger take, estimated from a sample.

use push_model::{ids::MessageId, ledger::record};
use rand::{
    RngExt,
    seq::{IndexedRandom, SliceRandom},
};

use super::{
    lists::{ListKind, PageLists},
    stripes::{memory_usage, records_of, sample_of},
};
use crate::{
    IndexError,
    redis::{
        RedisIndex,
        connection::reply,
        keys::{STRIPES, page_of_name, parse_listed_page},
    },
};

/// How many pages of a kind are measured.
const MEASURED_PAGES: usize = 256;

/// How many expanded entries of a page are measured.
const MEASURED_ENTRIES: usize = 8;

impl RedisIndex {
    /// The mean memory of a page of this kind, its expanded entries included, from a sample of
    /// pages.
    pub(super) async fn measure(
        &self,
        kind: ListKind,
        lists: &PageLists,
    ) -> Result<u64, IndexError> {
        let lists_of_kind: Vec<(u8, u64)> = STRIPES
            .filter_map(|stripe| Some((stripe, *lists.lengths.get(&(kind, stripe))?)))
            .filter(|(_, length)| *length > 0)
            .collect();
        let positions = sample(&lists_of_kind);
        if positions.is_empty() {
            return Ok(0);
        }
        let ask = positions.iter().map(|(stripe, at)| {
            let mut look = redis::cmd("LINDEX");
            look.arg(self.list(kind, *stripe)).arg(*at);
            (*stripe, look)
        });
        let elements = self.ask_stripes(ask.collect()).await?;
        let mut pages = Vec::with_capacity(positions.len());
        for ((stripe, _), element) in positions.iter().zip(elements) {
            let element = reply::bytes(element)?.unwrap_or_default();
            let element = String::from_utf8_lossy(&element);
            let name = parse_listed_page(&element).map(|(_, name)| name.to_owned());
            pages.extend(name.map(|name| (*stripe, name)));
        }
        let ask = pages
            .iter()
            .map(|(stripe, name)| (*stripe, memory_usage(&self.keys.stripe(*stripe).page(name))));
        let mut bytes: u64 = 0;
        for usage in self.ask_stripes(ask.collect()).await? {
            bytes += reply::number(usage)?.unwrap_or(0);
        }
        // A page that began with a record can have expanded entries as well, of pushes that are
        // tried again.
        bytes += self.measure_entries(&pages).await?;
        Ok(bytes / pages.len().max(1) as u64)
    }

    /// The memory of the expanded entries of these pages, from a sample of each page.
    async fn measure_entries(&self, pages: &[(u8, String)]) -> Result<u64, IndexError> {
        let ask = pages.iter().flat_map(|(stripe, name)| {
            sample_of(&self.keys.stripe(*stripe).page(name)).map(|command| (*stripe, command))
        });
        let mut answers = self.ask_stripes(ask.collect()).await?.into_iter();
        // Of each page how many expanded entries it has, and how many of them are measured.
        let (mut counts, mut chosen) = (Vec::new(), Vec::new());
        for (stripe, name) in pages {
            let all = reply::number(answers.next().unwrap_or_default())?.unwrap_or(0);
            let answer = answers.next().unwrap_or_default();
            let Some(page) = page_of_name(*stripe, name) else { continue };
            let records = records_of(answer)?;
            let (all, sampled) = (all.max(1), records.len().max(1) as u64);
            let mut entries: Vec<String> = Vec::new();
            for (field, record) in records {
                if record::is_stub(&record) {
                    entries.push(
                        self.keys.message(&MessageId::from_page(page, field)).expanded_entry(),
                    );
                }
            }
            entries.shuffle(&mut rand::rng());
            let expanded = entries.len() as u64 * all / sampled;
            counts.push((expanded, entries.len().min(MEASURED_ENTRIES)));
            chosen.extend(entries.into_iter().take(MEASURED_ENTRIES).map(|entry| (*stripe, entry)));
        }
        let ask = chosen.into_iter().map(|(stripe, entry)| (stripe, memory_usage(&entry)));
        let mut usages = self.ask_stripes(ask.collect()).await?.into_iter();
        let mut bytes = 0;
        for (entries, measured) in counts {
            let mut sum = 0;
            for usage in usages.by_ref().take(measured) {
                sum += reply::number(usage)?.unwrap_or(0);
            }
            bytes += sum * entries / measured.max(1) as u64;
        }
        Ok(bytes)
    }
}

/// Positions in lists of these lengths: all, or a random sample of [`MEASURED_PAGES`].
fn sample(lists: &[(u8, u64)]) -> Vec<(u8, u64)> {
    let total: u64 = lists.iter().map(|(_, length)| length).sum();
    if total <= MEASURED_PAGES as u64 {
        return lists
            .iter()
            .flat_map(|(stripe, length)| (0..*length).map(|at| (*stripe, at)))
            .collect();
    }
    let mut rng = rand::rng();
    let mut drawn = Vec::with_capacity(MEASURED_PAGES);
    for _ in 0..MEASURED_PAGES {
        if let Ok((stripe, length)) = lists.choose_weighted(&mut rng, |(_, length)| *length) {
            drawn.push((*stripe, rng.random_range(0..*length)));
        }
    }
    drawn
}
