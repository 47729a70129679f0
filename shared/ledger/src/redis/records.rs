//! Entries as records, many to a page: each change is a compare-and-swap, and changes that are made
//! at the same time are coalesced into one script call a page.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::future::join_all;
use push_model::{ids::PageField, ledger::record, time::UnixMillis};
use push_store::{
    IndexError,
    coalescer::{Coalescer, CoalescerLimits},
    redis::{
        connection::{Link, reply},
        keys::{MessageKeys, StripeKeys},
    },
};
use redis::Value;

use super::{list::ListMember, stored_entry::KEEP_AT_LEAST};
use crate::redis::{RedisLedger, scripts::Scripts};

/// The longest record, in bytes. Redis stores a hash packed while no value of it is longer than
/// `hash-max-listpack-value`, 64 by default. An entry that needs a longer record is expanded.
pub(super) const MAX_RECORD: usize = 64;

/// A script call with this many changes takes Redis less than a millisecond.
const LIMITS: CoalescerLimits = CoalescerLimits { group_calls: 512, groups: 4 };

/// A compare-and-swap of one record.
#[derive(Debug)]
pub(super) struct Swap {
    pub(super) page: String,
    pub(super) field: PageField,
    /// The bytes with which the record must begin; empty if there must be no record.
    pub(super) expected: Vec<u8>,
    /// The bytes that replace `expected`.
    pub(super) head: Vec<u8>,
    /// The bytes that are appended to the record.
    pub(super) behind: Vec<u8>,
    pub(super) keep: PageLifetime,
    /// The keys of the lists of entries that are kept as long as the page.
    pub(super) kept_lists: Vec<String>,
    /// The mark with which a record does not begin if it is among those of evicted entries.
    pub(super) unless_evicted: Option<u64>,
    /// The member by which its app's list of entries finds a record that begins.
    pub(super) listed: Option<ListMember>,
}

/// The changes that one script call can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SwapKind {
    Begin,
    BeginUnlessEvicted,
    Change,
}

/// The shortest lifetime of a page. The default leaves it as it is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageLifetime {
    /// In Unix milliseconds; 0 leaves the page as it is.
    until: u64,
    /// From now on, in milliseconds.
    at_least: u64,
}

impl PageLifetime {
    pub(super) fn until(time: UnixMillis) -> Self {
        Self { until: time.0, at_least: KEEP_AT_LEAST.as_secs() * 1000 }
    }
}

impl Swap {
    /// A change of this message's record that appends nothing and keeps the page no longer.
    pub(super) fn of(keys: &MessageKeys, expected: Vec<u8>, head: Vec<u8>) -> Self {
        let MessageKeys { page, field, .. } = keys;
        let (page, field) = (page.clone(), *field);
        let (behind, keep) = (Vec::new(), PageLifetime::default());
        let kept_lists = Vec::new();
        let (unless_evicted, listed) = (None, None);
        Self { page, field, expected, head, behind, keep, kept_lists, unless_evicted, listed }
    }

    /// It begins a record if that has a valid length, as `begin_records.lua` requires.
    fn kind(&self) -> SwapKind {
        let is_short = self.head.len() + self.behind.len() <= MAX_RECORD;
        match self.expected.is_empty() && self.keep.until > 0 && is_short {
            true if self.unless_evicted.is_some() => SwapKind::BeginUnlessEvicted,
            true => SwapKind::Begin,
            false => SwapKind::Change,
        }
    }
}

/// The outcome of a [`Swap`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Swapped {
    Done,
    /// The record does not begin as expected, or would become too long. It stays as it is here;
    /// none if there is no record.
    Refused(Option<Vec<u8>>),
}

/// Coalesces changes of records, of which each caller makes a few.
pub(super) type Swaps = Coalescer<Vec<Swap>, Vec<Result<Swapped, IndexError>>>;

/// The connections of a group of changes. A group outlives the call that started it, so it owns
/// this.
#[derive(Clone)]
struct Context {
    scripts: Arc<Scripts>,
    link: Arc<Link>,
}

/// The coalescer of a program's changes.
pub(super) fn swaps(scripts: Arc<Scripts>, link: Arc<Link>) -> Swaps {
    let context = Context { scripts, link };
    Coalescer::new(LIMITS, move |calls| swap_calls(context.clone(), calls))
}

async fn swap_calls(
    context: Context,
    calls: Vec<Vec<Swap>>,
) -> Vec<Vec<Result<Swapped, IndexError>>> {
    let counts: Vec<usize> = calls.iter().map(Vec::len).collect();
    let mut answers = swap_group(context, calls.into_iter().flatten().collect()).await.into_iter();
    counts.into_iter().map(|count| answers.by_ref().take(count).collect()).collect()
}

async fn swap_group(context: Context, swaps: Vec<Swap>) -> Vec<Result<Swapped, IndexError>> {
    let mut answers: Vec<_> = swaps.iter().map(|_| Ok(Swapped::Done)).collect();
    // For each page one call of each kind, and further calls for a field that comes more than once.
    let mut pages: BTreeMap<(&str, SwapKind), Vec<BTreeMap<PageField, usize>>> = BTreeMap::new();
    for (number, swap) in swaps.iter().enumerate() {
        let calls = pages.entry((&swap.page, swap.kind())).or_default();
        match calls.iter_mut().find(|fields| !fields.contains_key(&swap.field)) {
            Some(fields) => drop(fields.insert(swap.field, number)),
            None => calls.push(BTreeMap::from([(swap.field, number)])),
        }
    }
    let calls: Vec<_> = pages
        .into_iter()
        .flat_map(|(of, calls)| calls.into_iter().map(move |call| (of, call)))
        .collect();
    let made = calls.iter().map(|((page, kind), fields)| {
        let swaps: Vec<&Swap> = fields.values().filter_map(|number| swaps.get(*number)).collect();
        swap_page(&context, page, *kind, swaps)
    });
    for (answer, (_, fields)) in join_all(made).await.into_iter().zip(&calls) {
        match answer {
            Ok(refused) => {
                let numbers: Vec<usize> = fields.values().copied().collect();
                for (index, record) in refused {
                    if let Some(number) = numbers.get(index) {
                        answers[*number] = Ok(Swapped::Refused(record));
                    }
                }
            }
            Err(error) => {
                fields.values().for_each(|number| answers[*number] = Err(error.duplicate()));
            }
        }
    }
    answers
}

/// Changes records of one page. Returns the records that were refused, with their index in `swaps`.
async fn swap_page(
    context: &Context,
    page: &str,
    kind: SwapKind,
    swaps: Vec<&Swap>,
) -> Result<Vec<(usize, Option<Vec<u8>>)>, IndexError> {
    let (pages, evicted) = (StripeKeys::pages_of(page), StripeKeys::evicted_of(page));
    let until = swaps.iter().map(|swap| swap.keep.until).max().unwrap_or(0);
    let at_least = swaps.iter().map(|swap| swap.keep.at_least).max().unwrap_or(0);
    let call = if kind == SwapKind::Change {
        let lists: BTreeSet<&str> =
            swaps.iter().flat_map(|swap| &swap.kept_lists).map(String::as_str).collect();
        let keys: Vec<&str> = [page, &pages].into_iter().chain(lists).collect();
        let mut swap = context.scripts.swap_records.call(&keys);
        swap.arg(until).arg(at_least).arg(MAX_RECORD);
        for Swap { field, expected, head, behind, .. } in swaps {
            swap.arg(&field.0).arg(expected).arg(head).arg(behind);
        }
        swap
    } else {
        let mut members = BTreeMap::<_, BTreeSet<&[u8]>>::new();
        for Swap { field, listed, .. } in &swaps {
            if let Some(ListMember { list, member }) = listed {
                members.entry((*list, field.app())).or_default().insert(member);
            }
        }
        let lists: Vec<String> = members
            .keys()
            .map(|(list, app)| StripeKeys::entry_list_of(page, *list, *app))
            .collect();
        let keys = [page, &pages, &evicted].into_iter().chain(lists.iter().map(String::as_str));
        let mut begin = context.scripts.begin_records.call(&keys.collect::<Vec<_>>());
        let marks: Vec<u64> = swaps.iter().filter_map(|swap| swap.unless_evicted).collect();
        begin.arg(until).arg(at_least).arg(&record::STUB).arg(marks.len()).arg(marks);
        for members in members.into_values() {
            begin.arg(members.len());
            for member in members {
                begin.arg(0).arg(member);
            }
        }
        for Swap { field, head, behind, .. } in swaps {
            begin.arg(&field.0).arg([head.as_slice(), behind].concat());
        }
        begin
    };
    let mut refused = Vec::new();
    let mut answer = reply::list(call.run(&context.link).await?)?.into_iter();
    while let (Some(index), Some(record)) = (answer.next(), answer.next()) {
        let index = reply::number(index)?.and_then(|index| usize::try_from(index).ok());
        let index = index.ok_or_else(|| IndexError::Corrupt("the place of a record".to_owned()))?;
        refused.push((index, record_of(record)?));
    }
    Ok(refused)
}

/// Reads a record; none if there is none.
pub(super) fn record_of(value: Value) -> Result<Option<Vec<u8>>, IndexError> {
    Ok(reply::bytes(value)?.filter(|record| !record.is_empty()))
}

impl RedisLedger {
    /// Changes records, one answer each.
    async fn swap_all(&self, swaps: Vec<Swap>) -> Vec<Result<Swapped, IndexError>> {
        let count = swaps.len();
        if count == 0 {
            return Vec::new();
        }
        match self.swaps.call(swaps).await {
            Ok(answers) => answers,
            Err(aborted) => {
                (0..count).map(|_| Err(IndexError::Unsure(Box::new(aborted)))).collect()
            }
        }
    }

    /// Changes records, one answer each; where no change is given, the answer is none.
    pub(super) async fn swap_some(
        &self,
        swaps: Vec<Option<Swap>>,
    ) -> Vec<Option<Result<Swapped, IndexError>>> {
        let some: Vec<bool> = swaps.iter().map(Option::is_some).collect();
        let mut answers = self.swap_all(swaps.into_iter().flatten().collect()).await.into_iter();
        some.into_iter().map(|is_some| is_some.then(|| answers.next()).flatten()).collect()
    }

    /// Changes one record.
    pub(super) async fn swap(&self, swap: Swap) -> Result<Swapped, IndexError> {
        let answer = self.swap_all(vec![swap]).await.pop();
        answer.unwrap_or_else(|| Err(IndexError::Unsure("a change without an answer".into())))
    }
}
