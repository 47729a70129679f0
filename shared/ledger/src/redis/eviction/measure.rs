//! The memory that the pages of the ledger take, and how much of it each app holds, estimated from a
//! sample.

use std::collections::BTreeMap;

use push_model::{ids::AppTag, ledger::record};
use push_store::{
    IndexError,
    redis::{
        connection::reply,
        keys::{STRIPES, page_of_name, parse_listed_page},
    },
};
use rand::{
    RngExt,
    seq::{IndexedRandom, SliceRandom},
};

use super::{
    lists::{ListKind, PageLists},
    stripes::{memory_usage, read_page, records_of},
};
use crate::redis::RedisLedger;

/// Pages of each kind to measure.
const MEASURED_PAGES: usize = 256;

/// Expanded entries of a page to measure.
const MEASURED_ENTRIES: usize = 8;

/// The memory that a list takes for each page, in bytes.
const LIST_BYTES: u64 = 20;

/// The memory that the lists of an app's entries take for each of its pages, in bytes: about ten for the
/// member, and a list of its own if the app has few entries.
const LISTED_BYTES: u64 = 160;

/// The size of pages of the ledger in bytes, their expanded entries included.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    /// The parts of it that apps hold. The account is made anew in each round, so it cannot drift, and
    /// costs nothing when an entry is written.
    pub(super) by_app: BTreeMap<AppTag, u64>,
}

impl Measured {
    fn add(&mut self, app: AppTag, bytes: u64) {
        self.bytes += bytes;
        *self.by_app.entry(app).or_default() += bytes;
    }

    /// Returns what all pages take if `sampled` of them take this.
    fn scale(mut self, all: u64, sampled: u64) -> Self {
        let scaled = |bytes: u64| {
            let bytes = u128::from(bytes) * u128::from(all) / u128::from(sampled.max(1));
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        self.bytes = scaled(self.bytes);
        self.by_app.values_mut().for_each(|bytes| *bytes = scaled(*bytes));
        self
    }
}

/// The expanded entries of an app on one page.
struct Expanded {
    app: AppTag,
    stripe: u8,
    keys: Vec<String>,
}

impl RedisLedger {
    /// Returns what the pages of this kind take, from a sample of them.
    pub(super) async fn measure(
        &self,
        kind: ListKind,
        lists: &PageLists,
    ) -> Result<Measured, IndexError> {
        let lists_of_kind: Vec<(u8, u64)> = STRIPES
            .filter_map(|stripe| Some((stripe, *lists.lengths.get(&(kind, stripe))?)))
            .filter(|(_, length)| *length > 0)
            .collect();
        let all: u64 = lists_of_kind.iter().map(|(_, length)| length).sum();
        let positions = sample(&lists_of_kind);
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
        Ok(self.measure_pages(&pages).await?.scale(all, pages.len() as u64))
    }

    /// Returns what these pages take.
    async fn measure_pages(&self, pages: &[(u8, String)]) -> Result<Measured, IndexError> {
        let ask = pages.iter().flat_map(|(stripe, name)| {
            read_page(&self.keys.stripe(*stripe).page(name)).map(|command| (*stripe, command))
        });
        let mut answers = self.ask_stripes(ask.collect()).await?.into_iter();
        let (mut measured, mut expanded) = (Measured::default(), Vec::new());
        for (stripe, name) in pages {
            let records = records_of(answers.next().unwrap_or_default())?;
            let usage = reply::number(answers.next().unwrap_or_default())?.unwrap_or(0);
            let Some(page) = page_of_name(*stripe, name) else { continue };
            let keys = self.keys.stripe(*stripe);
            let count = records.len() as u64;
            if count == 0 {
                measured.bytes += usage + LIST_BYTES;
            }
            // The number of records of each app, and its expanded entries. A page that began with a record
            // can have some as well, of pushes that are tried again.
            let mut by_app: BTreeMap<AppTag, (u64, Vec<String>)> = BTreeMap::new();
            for (field, record) in records {
                let (records, stubs) = by_app.entry(field.app()).or_default();
                *records += 1;
                if record::is_stub(&record) {
                    stubs.push(keys.expanded_entry(page, field));
                }
            }
            for (app, (records, mut stubs)) in by_app {
                measured.add(app, (usage + LIST_BYTES) * records / count + LISTED_BYTES);
                stubs.shuffle(&mut rand::rng());
                expanded.push(Expanded { app, stripe: *stripe, keys: stubs });
            }
        }
        let measured_keys = |one: &Expanded| one.keys.len().min(MEASURED_ENTRIES);
        let ask = expanded.iter().flat_map(|one| {
            let keys = one.keys.iter().take(measured_keys(one));
            keys.map(|key| (one.stripe, memory_usage(key)))
        });
        let mut usages = self.ask_stripes(ask.collect()).await?.into_iter();
        for one in &expanded {
            let mut sum = 0;
            for usage in usages.by_ref().take(measured_keys(one)) {
                sum += reply::number(usage)?.unwrap_or(0);
            }
            measured.add(one.app, sum * one.keys.len() as u64 / measured_keys(one).max(1) as u64);
        }
        Ok(measured)
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
