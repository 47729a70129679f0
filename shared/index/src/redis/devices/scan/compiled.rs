//! Criteria that are made once for a targeting and the dictionaries, and shared by all scans.
//!
//! Making them costs as much as the dictionary has values, so it is done in steps between which other
//! tasks run, and not for each scan: a broadcast has many.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use push_model::{
    app::AppKey,
    attributes::Attribute,
    filter::{Column, Test},
    targeting::Targeting,
};
use push_store::IndexError;
use quick_cache::{Weighter, sync::Cache};

use super::{
    criteria::Criteria,
    decision::Scope,
    table::{Criterion, MATCH, Table, TableGroup, criteria_of},
};
use crate::redis::{
    RedisIndex,
    dictionary::{CACHED_FOR, Dictionaries, Moment},
};

/// About how many targetings have their tables in the cache.
const CACHED_TARGETINGS: usize = 128;

/// The most memory of the tables and their targetings.
const CACHED_BYTES: u64 = 32 * 1024 * 1024;

/// Values to look up before other tasks run: well below a millisecond.
const STEP_VALUES: usize = 2048;

/// Comparisons to make before other tasks run: well below a millisecond, with some 50 ns for two versions.
const STEP_COMPARISONS: usize = 4 * 1024;

/// The tables of targetings.
pub(in crate::redis) type TableCache = Cache<Compiled, Arc<[Table]>, ByBytes>;

/// The source of tables: the number of the dictionaries, and the targeting without its sample, which no table has. So
/// samples with other seeds share the tables.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::redis) struct Compiled(u64, Targeting);

impl Compiled {
    fn new(dictionaries: u64, targeting: &Targeting) -> Self {
        Self(dictionaries, targeting.without_sample())
    }
}

/// Weighs tables by their bytes.
#[derive(Debug, Clone)]
pub(in crate::redis) struct ByBytes;

impl Weighter<Compiled, Arc<[Table]>> for ByBytes {
    fn weight(&self, Compiled(_, targeting): &Compiled, tables: &Arc<[Table]>) -> u64 {
        let tables: usize = tables.iter().map(Table::bytes).sum();
        u64::try_from(tables + targeting.bytes()).unwrap_or(u64::MAX).saturating_add(1024)
    }
}

pub(in crate::redis) fn table_cache() -> TableCache {
    Cache::with_weighter(CACHED_TARGETINGS, CACHED_BYTES, ByBytes)
}

/// Criteria, and the dictionaries of which they were made.
#[derive(Debug, Clone)]
pub(super) struct MadeOf {
    pub(super) criteria: Criteria,
    dictionaries: Arc<Dictionaries>,
}

/// The criteria of a scan, which are replaced when they are out of date.
#[derive(Debug)]
pub(super) struct Current(Mutex<MadeOf>);

impl Current {
    pub(super) fn get(&self) -> MadeOf {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, made: MadeOf) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = made;
    }
}

impl MadeOf {
    /// Returns true if the dictionary of topics lacks a code.
    pub(super) fn lacks_topic(&self, code: u16) -> bool {
        self.dictionaries.with(Column::Topic, |known| known.value(code).is_none())
    }

    /// Checks that a decision on devices that were read at this moment can be relied on.
    pub(super) fn decided_in_time(&self, devices_read: Moment) -> Result<(), IndexError> {
        self.dictionaries.decided_in_time(devices_read)
    }
}

impl RedisIndex {
    /// The criteria for a scan that begins.
    pub(super) async fn criteria(&self, scope: Scope<'_>) -> Result<Current, IndexError> {
        let dictionaries = self.dictionaries(scope.app).await?;
        self.know_filter(scope, &dictionaries).await?;
        Ok(Current(Mutex::new(self.compile(scope, dictionaries, false).await)))
    }

    /// Replaces criteria that were made of dictionaries that are due for a check.
    pub(super) async fn renew(
        &self,
        scope: Scope<'_>,
        current: &Current,
    ) -> Result<(), IndexError> {
        if current.get().dictionaries.age() >= CACHED_FOR {
            let dictionaries = self.dictionaries(scope.app).await?;
            self.know_filter(scope, &dictionaries).await?;
            current.set(self.compile(scope, dictionaries, false).await);
        }
        Ok(())
    }

    /// Completes criteria with what was added to the dictionaries since. With `check`, the dictionaries are
    /// those that are in force now.
    pub(super) async fn complete(
        &self,
        scope: Scope<'_>,
        current: &Current,
        check: bool,
    ) -> Result<(), IndexError> {
        let MadeOf { mut dictionaries, criteria } = current.get();
        if check {
            dictionaries = self.dictionaries_now(scope.app).await?;
        }
        let others = criteria.dictionary_columns();
        let others = others.filter(|column| !matches!(column, Column::BuiltIn(_)));
        let columns: BTreeSet<Column> =
            Attribute::ALL.map(Column::BuiltIn).into_iter().chain(others).collect();
        self.read_rest(scope.app, &dictionaries, columns).await?;
        current.set(self.compile(scope, dictionaries, true).await);
        Ok(())
    }

    /// Reads what the dictionaries must have before a filter is evaluated. A code of an attribute that they lack shows
    /// when it comes up, but a topic is looked for by its codes, so these must be known.
    async fn know_filter(
        &self,
        scope: Scope<'_>,
        dictionaries: &Arc<Dictionaries>,
    ) -> Result<(), IndexError> {
        let Some(filter) = &scope.targeting.filter else { return Ok(()) };
        let columns: BTreeSet<Column> = filter.leaves().iter().map(|leaf| leaf.column).collect();
        self.load(scope.app, dictionaries, columns).await?;
        self.know_topics(scope.app, dictionaries, topics_of(scope.targeting)).await
    }

    async fn dictionaries_now(&self, app: &AppKey) -> Result<Arc<Dictionaries>, IndexError> {
        self.dictionaries_within(app, std::time::Duration::ZERO).await
    }

    /// The tables of a targeting from the cache, made now if they are not there. With `complete`, they
    /// know what the dictionaries know.
    async fn compile(
        &self,
        scope: Scope<'_>,
        dictionaries: Arc<Dictionaries>,
        complete: bool,
    ) -> MadeOf {
        let Scope { carrier, targeting, registered_by, .. } = scope;
        let key = Compiled::new(dictionaries.number, targeting);
        let cached = self.table_cache.get(&key);
        let tables = match cached {
            Some(tables) if !complete && knows_topics(&tables, targeting, &dictionaries) => tables,
            cached => {
                let mut tables: Vec<Table> = match cached {
                    Some(tables) => tables.to_vec(),
                    None => criteria_of(targeting).map(|of| Table::new(of.column())).collect(),
                };
                let criteria = criteria_of(targeting);
                complete_tables(tables.iter_mut().zip(criteria), &dictionaries).await;
                let tables: Arc<[Table]> = tables.into();
                self.table_cache.insert(key, Arc::clone(&tables));
                tables
            }
        };
        let criteria = Criteria::new(carrier, tables, registered_by).beside_lists(targeting);
        MadeOf { criteria, dictionaries }
    }
}

/// The topics that a filter asks for.
fn topics_of(targeting: &Targeting) -> impl Iterator<Item = &str> {
    let leaves = targeting.filter.iter().flat_map(|filter| filter.leaves());
    let lists = leaves.filter_map(|leaf| match (&leaf.test, leaf.column) {
        (Test::In(topics), Column::Topic) => Some(topics),
        _ => None,
    });
    lists.flatten().map(|topic| &**topic)
}

/// Returns true if tables have the codes of all topics that the dictionaries know.
fn knows_topics(tables: &[Table], targeting: &Targeting, dictionaries: &Dictionaries) -> bool {
    let mut leaves = tables.iter().zip(criteria_of(targeting));
    leaves.all(|(table, criterion)| match criterion {
        Criterion::Leaf(leaf) if leaf.column == Column::Topic => {
            dictionaries.with(Column::Topic, |known| {
                let wanted = criterion.exact_values().unwrap_or_default();
                let mut codes = wanted.iter().filter_map(|topic| known.code(topic));
                codes.all(|code| table.value_of(code) == MATCH)
            })
        }
        Criterion::Leaf(_) | Criterion::List(..) => true,
    })
}

/// Completes tables with what the dictionaries have. Either each value of a dictionary is looked for in the
/// list of the criterion, or vice versa if the list is shorter and has exact values: a lookup in the
/// dictionary costs less than the search in a list.
async fn complete_tables<'t, 'a>(
    tables: impl Iterator<Item = (&'t mut Table, Criterion<'a>)>,
    dictionaries: &Dictionaries,
) {
    let mut groups: Vec<TableGroup<'_, '_>> = Vec::new();
    for (table, criterion) in tables {
        let (codes, has_one_code_each) = dictionaries.with(criterion.column(), |known| {
            (known.values().len() + 1, known.has_one_code_each())
        });
        let wanted = criterion.exact_values().filter(|_| has_one_code_each);
        if let Some(wanted) = wanted.filter(|wanted| wanted.len() < table.missing(codes)) {
            look_up(table, criterion.column(), wanted, codes, dictionaries).await;
            continue;
        }
        // Preparing it costs as much as its list is long.
        tokio::task::yield_now().await;
        match groups.iter_mut().find(|group| group.takes(criterion)) {
            Some(group) => group.add(table, criterion),
            None => {
                let mut group = TableGroup::of(criterion);
                group.add(table, criterion);
                groups.push(group);
            }
        }
    }
    for mut group in groups {
        let column = group.column;
        let codes = dictionaries.with(column, |known| known.values().len() + 1);
        let step = (STEP_COMPARISONS / group.comparisons()).clamp(1, STEP_VALUES);
        for from in (0..codes).step_by(step) {
            tokio::task::yield_now().await;
            dictionaries.with(column, |known| group.complete(known, from, from + step));
        }
    }
}

/// Completes a table with the codes of the only values that its criterion wants, of this many.
async fn look_up(
    table: &mut Table,
    column: Column,
    wanted: &[Box<str>],
    codes: usize,
    dictionaries: &Dictionaries,
) {
    for from in (0..codes).step_by(STEP_VALUES) {
        tokio::task::yield_now().await;
        dictionaries.with(column, |known| table.rule_out(known, from, from + STEP_VALUES));
    }
    // Only now, so that a value which the dictionary learns in between is not ruled out.
    for some in wanted.chunks(STEP_VALUES) {
        tokio::task::yield_now().await;
        dictionaries.with(column, |known| table.look_up(some, known));
    }
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use push_model::{
        custom::Order,
        filter::{Filter, Leaf, Limit, Node, Sample},
    };

    use super::*;
    use crate::redis::dictionary::Dictionary;

    fn wanted(attribute: Attribute, values: impl IntoIterator<Item = String>) -> Targeting {
        let mut targeting = Targeting::all_devices();
        targeting.set(attribute, values.into_iter().map(Into::into).collect());
        targeting
    }

    /// A dictionary of this many values, with a free code after every seventh.
    fn dictionary(values: usize) -> Dictionary {
        let mut known = Dictionary::default();
        let value = |n: usize| if n % 7 == 6 { String::new() } else { format!("v{n}") };
        known.add_read(0, (0..values).map(|n| value(n).into()).collect());
        known
    }

    #[tokio::test]
    async fn a_table_is_the_same_whichever_of_list_and_dictionary_is_looked_up_in_the_other() {
        for attribute in [Attribute::AppVersion, Attribute::Language] {
            for listed in [1, 50, 900, 9000] {
                let targeting = wanted(attribute, (0..listed).map(|n| format!("v{}", n * 3)));
                let (column, criterion) =
                    (Column::BuiltIn(attribute), Criterion::List(&targeting, attribute));
                let mut repeated = dictionary(3000);
                repeated.add(6, "v3".into());
                for first in [dictionary(3000), dictionary(40), repeated] {
                    let dictionaries = Dictionaries::of(column, first);
                    let mut table = Table::new(column);
                    complete_tables(once((&mut table, criterion)), &dictionaries).await;
                    dictionaries.learn(column, 5000, "v9");
                    dictionaries.learn(column, 4999, "other");
                    complete_tables(once((&mut table, criterion)), &dictionaries).await;
                    let mut searched = Table::new(column);
                    let mut group = TableGroup::of(criterion);
                    group.add(&mut searched, criterion);
                    dictionaries.with(column, |known| group.complete(known, 0, usize::MAX));
                    assert_eq!(table.decisions(), searched.decisions(), "{attribute:?} {listed}");
                }
            }
        }
    }

    #[test]
    fn samples_that_differ_only_in_their_seed_share_their_tables() {
        let seeded = |seed: &str| {
            let mut targeting = wanted(Attribute::Country, ["SG".to_owned()]);
            targeting.sample = Some(Sample { from: 0, to: 1000, seed: seed.into() });
            Compiled::new(1, &targeting)
        };
        assert_eq!(seeded("a"), seeded("b"));
    }

    /// A targeting with as many leaves as a filter may have, which compares versions.
    fn by_versions(test: impl Fn(usize) -> Test) -> Targeting {
        let column = Column::BuiltIn(Attribute::AppVersion);
        let leaf = |n| Leaf::new(column, Some(Order::Version), test(n));
        let root = Node::Any((0..64).map(Node::Leaf).collect());
        let filter = Filter::new((0..64).map(leaf).collect(), root).unwrap();
        let mut targeting = Targeting::all_devices();
        targeting.filter = Some(Arc::new(filter));
        targeting
    }

    #[tokio::test]
    async fn the_tables_of_many_leaves_say_what_each_leaf_wants_of_every_version() {
        let column = Column::BuiltIn(Attribute::AppVersion);
        let limit = |value: String, inclusive| Some(Limit { value: value.into(), inclusive });
        let (lists, ranges) = (
            by_versions(|n| Test::In((0..156).map(|m| version(m % 40, n, m)).collect())),
            by_versions(|n| Test::Range {
                from: limit(format!("{n}.1"), true),
                to: limit(format!("{}.1.0", n + 3), false),
            }),
        );
        let mut known = Dictionary::default();
        let values: Vec<Arc<str>> =
            (0..3000).map(|n| (*version(n % 40, n / 40 % 40, n / 1600)).into()).collect();
        known.add_read(0, values.clone());
        let dictionaries = Dictionaries::of(column, known);
        for targeting in [lists, ranges] {
            let mut tables: Vec<_> = (0..64).map(|_| Table::new(column)).collect();
            let criteria = criteria_of(&targeting);
            complete_tables(tables.iter_mut().zip(criteria), &dictionaries).await;
            for (table, criterion) in tables.iter().zip(criteria_of(&targeting)) {
                let Criterion::Leaf(leaf) = criterion else { panic!("{criterion:?}") };
                for (code, value) in (1..=u16::MAX).zip(&values).step_by(7) {
                    let expected = if leaf.wants(value) { MATCH } else { 0 };
                    assert_eq!(table.value_of(code), expected, "{leaf:?} {value}");
                }
            }
        }
    }

    fn version(a: usize, b: usize, c: usize) -> Box<str> {
        format!("{a}.{b}.{c}-rc{}", c % 9).into()
    }
}
