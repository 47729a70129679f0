//! Entries as records, many to a page: each change compares and swaps, and changes that come
//! together are one script call a page.

use std::collections::BTreeMap;

use futures::future::join_all;
use push_model::ids::InPage;
use redis::Value;

use crate::{
    IndexError,
    group::{GroupLimits, Grouped},
    redis::{
        Access,
        keys::{MessageKeys, PartKeys},
        reply,
    },
};

/// The longest record of a page. Redis stores a hash packed while no value of it is longer than
/// `hash-max-listpack-value`, 64 by default. A longer one gets fields of its own.
pub(super) const LONGEST: usize = 64;

/// How changes are grouped: a script call of so many takes Redis under a millisecond.
const LIMITS: GroupLimits = GroupLimits { calls: 512, groups: 4 };

/// A change of one record.
#[derive(Debug)]
pub(in crate::redis) struct Swap {
    pub(super) page: String,
    pub(super) field: InPage,
    /// How the record must begin now; empty if there must be none.
    pub(super) expected: Vec<u8>,
    /// What takes the place of that.
    pub(super) head: Vec<u8>,
    /// What is written behind the record.
    pub(super) behind: Vec<u8>,
    /// Until when its page is kept at least, and for how long from now on, in milliseconds.
    pub(super) keep: (u64, u64),
}

impl Swap {
    /// A change of this message's record that takes nothing back and keeps the page no longer.
    pub(super) fn of(keys: &MessageKeys, expected: Vec<u8>, head: Vec<u8>) -> Self {
        let MessageKeys { page, field, .. } = keys;
        let (page, field) = (page.clone(), *field);
        Self { page, field, expected, head, behind: Vec::new(), keep: (0, 0) }
    }

    /// Whether it begins a record that is short enough.
    fn begins(&self) -> bool {
        let is_short = self.head.len() + self.behind.len() <= LONGEST;
        self.expected.is_empty() && self.keep.0 > 0 && is_short
    }
}

/// What became of a [`Swap`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) enum Swapped {
    Done,
    /// The record is this one, if there is any, and stays; or the new one would be too long.
    Not(Option<Vec<u8>>),
}

/// Changes of records that callers ask for, a few each; those of a page that come together are made
/// in one step.
pub(in crate::redis) type Swaps = Grouped<Vec<Swap>, Vec<Result<Swapped, IndexError>>>;

/// Groups changes that go through this access.
pub(in crate::redis) fn swaps(access: Access) -> Swaps {
    Grouped::new(LIMITS, move |calls| swap_calls(access.clone(), calls))
}

async fn swap_calls(
    access: Access,
    calls: Vec<Vec<Swap>>,
) -> Vec<Vec<Result<Swapped, IndexError>>> {
    let counts: Vec<usize> = calls.iter().map(Vec::len).collect();
    let mut answers = swap_all(access, calls.into_iter().flatten().collect()).await.into_iter();
    counts.into_iter().map(|count| answers.by_ref().take(count).collect()).collect()
}

async fn swap_all(access: Access, swaps: Vec<Swap>) -> Vec<Result<Swapped, IndexError>> {
    let mut answers: Vec<_> = swaps.iter().map(|_| Ok(Swapped::Done)).collect();
    // One call for what begins on a page and one for what changes, and more where a field comes twice.
    let mut pages: BTreeMap<(&str, bool), Vec<BTreeMap<InPage, usize>>> = BTreeMap::new();
    for (number, swap) in swaps.iter().enumerate() {
        let calls = pages.entry((&swap.page, swap.begins())).or_default();
        match calls.iter_mut().find(|fields| !fields.contains_key(&swap.field)) {
            Some(fields) => drop(fields.insert(swap.field, number)),
            None => calls.push(BTreeMap::from([(swap.field, number)])),
        }
    }
    let calls: Vec<(&str, BTreeMap<InPage, usize>)> = pages
        .into_iter()
        .flat_map(|((page, _), calls)| calls.into_iter().map(move |c| (page, c)))
        .collect();
    let made = calls.iter().map(|(page, fields)| {
        let swaps: Vec<&Swap> = fields.values().filter_map(|number| swaps.get(*number)).collect();
        swap_page(&access, page, swaps)
    });
    for (answer, (_, fields)) in join_all(made).await.into_iter().zip(&calls) {
        match answer {
            Ok(refused) => {
                let numbers: Vec<usize> = fields.values().copied().collect();
                for (place, record) in refused {
                    if let Some(number) = numbers.get(place) {
                        answers[*number] = Ok(Swapped::Not(record));
                    }
                }
            }
            Err(error) => fields.values().for_each(|number| answers[*number] = Err(error.again())),
        }
    }
    answers
}

/// Changes records of one page. Gives those that were not changed by their place, as they are.
async fn swap_page(
    access: &Access,
    page: &str,
    swaps: Vec<&Swap>,
) -> Result<Vec<(usize, Option<Vec<u8>>)>, IndexError> {
    let keys = [page, &PartKeys::pages_of(page)];
    let longest = |part: fn(&Swap) -> u64| swaps.iter().map(|swap| part(swap)).max().unwrap_or(0);
    let keep = (longest(|swap| swap.keep.0), longest(|swap| swap.keep.1));
    let call = if swaps.iter().all(|swap| swap.begins()) {
        let mut begin = access.scripts.begin.call(&keys);
        begin.arg(keep.0).arg(keep.1);
        for Swap { field, head, behind, .. } in swaps {
            begin.arg(field).arg([head.as_slice(), behind].concat());
        }
        begin
    } else {
        let mut swap = access.scripts.swap.call(&keys);
        swap.arg(keep.0).arg(keep.1).arg(LONGEST);
        for Swap { field, expected, head, behind, .. } in swaps {
            swap.arg(field).arg(expected).arg(head).arg(behind);
        }
        swap
    };
    let mut refused = Vec::new();
    let mut answer = reply::list(call.run(&access.link).await?)?.into_iter();
    while let (Some(place), Some(record)) = (answer.next(), answer.next()) {
        let place = reply::number(place)?.and_then(|place| usize::try_from(place).ok());
        let place = place.ok_or_else(|| IndexError::Corrupt("the place of a record".to_owned()))?;
        refused.push((place, record_of(record)?));
    }
    Ok(refused)
}

/// A record, or nothing.
pub(super) fn record_of(value: Value) -> Result<Option<Vec<u8>>, IndexError> {
    Ok(reply::bytes(value)?.filter(|record| !record.is_empty()))
}
