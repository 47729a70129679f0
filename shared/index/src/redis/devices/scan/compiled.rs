//! Criteria that are made once for a targeting and the dictionaries, and shared by all scans.
//!
//! Making them costs as much as the dictionary has values, so it is done in steps between which other
//! tasks run, and not for each scan: a broadcast has many.

use std::sync::{Arc, Mutex, PoisonError};

use push_model::{app::AppKey, targeting::Targeting};
use push_store::IndexError;
use quick_cache::{Weighter, sync::Cache};

use super::{
    criteria::{Criteria, Table},
    decision::Scope,
};
use crate::redis::{
    RedisIndex,
    dictionary::{CACHED_FOR, Dictionaries, Moment},
};

/// About how many targetings have their tables in the cache.
const CACHED_TARGETINGS: usize = 128;

/// The most memory of the tables and their targetings.
const CACHED_BYTES: u64 = 32 * 1024 * 1024;

/// Values to decide about before other tasks run: well below a millisecond.
const STEP_VALUES: usize = 2048;

/// The tables of targetings.
pub(in crate::redis) type TableCache = Cache<Compiled, Arc<[Table]>, ByBytes>;

/// The source of tables: the number of the dictionaries, and the targeting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::redis) struct Compiled(u64, Targeting);

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
    /// Checks that a decision on devices that were read at this moment can be relied on.
    pub(super) fn decided_in_time(&self, devices_read: Moment) -> Result<(), IndexError> {
        self.dictionaries.decided_in_time(devices_read)
    }
}

impl RedisIndex {
    /// The criteria for a scan that begins.
    pub(super) async fn criteria(&self, scope: Scope<'_>) -> Result<Current, IndexError> {
        let dictionaries = self.dictionaries(scope.app).await?;
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
        let mut dictionaries = current.get().dictionaries;
        if check {
            dictionaries = self.dictionaries_now(scope.app).await?;
        }
        self.read_rest(scope.app, &dictionaries).await?;
        current.set(self.compile(scope, dictionaries, true).await);
        Ok(())
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
        let key = Compiled(dictionaries.number, targeting.clone());
        let cached = self.table_cache.get(&key);
        let tables = match cached {
            Some(tables) if !complete => tables,
            cached => {
                let mut tables: Vec<Table> = match cached {
                    Some(tables) => tables.to_vec(),
                    None => {
                        targeting.criteria().map(|(attribute, _)| Table::new(attribute)).collect()
                    }
                };
                for table in &mut tables {
                    complete_table(table, targeting, &dictionaries).await;
                }
                let tables: Arc<[Table]> = tables.into();
                self.table_cache.insert(key, Arc::clone(&tables));
                tables
            }
        };
        MadeOf { criteria: Criteria::new(carrier, tables, registered_by), dictionaries }
    }
}

/// Completes a table with what the dictionary has. Either each value of the dictionary is looked for in the
/// list of the targeting, or vice versa if the list is shorter and has exact values: a lookup in the
/// dictionary costs less than the search in a list.
async fn complete_table(table: &mut Table, targeting: &Targeting, dictionaries: &Dictionaries) {
    let attribute = table.attribute;
    let (codes, has_one_code_each) =
        dictionaries.with(attribute, |known| (known.values().len() + 1, known.has_one_code_each()));
    let wanted = targeting.wanted(attribute);
    let is_looked_up =
        attribute.is_exact() && has_one_code_each && wanted.len() < table.missing(codes);
    for from in (0..codes).step_by(STEP_VALUES) {
        if from > 0 {
            tokio::task::yield_now().await;
        }
        let to = from + STEP_VALUES;
        dictionaries.with(attribute, |known| match is_looked_up {
            true => table.rule_out(known, from, to),
            false => table.complete(targeting, known, from, to),
        });
    }
    // Only now, so that a value which the dictionary learns in between is not ruled out.
    for some in wanted.chunks(STEP_VALUES).filter(|_| is_looked_up) {
        tokio::task::yield_now().await;
        dictionaries.with(attribute, |known| table.look_up(some, known));
    }
}

#[cfg(test)]
mod tests {
    use push_model::attributes::Attribute;

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
                let mut repeated = dictionary(3000);
                repeated.add(6, "v3".into());
                for first in [dictionary(3000), dictionary(40), repeated] {
                    let dictionaries = Dictionaries::of(attribute, first);
                    let mut table = Table::new(attribute);
                    complete_table(&mut table, &targeting, &dictionaries).await;
                    dictionaries.learn(attribute, 5000, "v9");
                    dictionaries.learn(attribute, 4999, "other");
                    complete_table(&mut table, &targeting, &dictionaries).await;
                    let mut searched = Table::new(attribute);
                    dictionaries.with(attribute, |known| {
                        searched.complete(&targeting, known, 0, usize::MAX);
                    });
                    assert_eq!(table.decisions(), searched.decisions(), "{attribute:?} {listed}");
                }
            }
        }
    }
}
