//! Targeting by codes.
//!
//! A criterion becomes the set of codes whose values match it, once for a targeting and a version of the
//! dictionaries; all scans of a broadcast share it. Values are looked up in ranges of the dictionary's
//! index that contain all matches, and [`Attribute::matches`] decides about each of them, so the result
//! cannot differ from [`Targeting::matches`]. The ranges of a list do not overlap, because no value of it
//! covers another. The filter comes after the lists ([`super::filter`]). A sample is decided by the client
//! id, so targetings that differ only in it share their criteria.

use std::sync::Arc;

use push_model::{attributes::Attribute, targeting::Targeting};
use push_sqlite::StoreError;
use quick_cache::{Weighter, sync::Cache};
use rusqlite::{Connection, params};

use super::{filter::CodedFilter, profile::ProfileCodes, scan::DeviceRow};

/// About how many targetings have their criteria in the cache.
const CACHED_TARGETINGS: usize = 64;

/// The most memory that they may take.
const CACHED_BYTES: u64 = 8 * 1024 * 1024;

/// The criteria of a targeting, as codes of one app.
#[derive(Debug)]
pub(in crate::sqlite) struct Criteria {
    lists: Vec<(Attribute, CodeSet)>,
    filter: Option<CodedFilter>,
}

/// The source of criteria: an app, the version of its dictionaries, and the targeting without its sample.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::sqlite) struct Compiled(i64, i64, Targeting);

/// Weighs criteria by their bytes.
#[derive(Debug, Clone)]
pub(in crate::sqlite) struct ByBytes;

impl Weighter<Compiled, Arc<Criteria>> for ByBytes {
    fn weight(&self, Compiled(.., targeting): &Compiled, criteria: &Arc<Criteria>) -> u64 {
        let lists: usize = criteria.lists.iter().map(|(_, codes)| codes.bytes()).sum();
        let filter = criteria.filter.as_ref().map_or(0, CodedFilter::bytes);
        u64::try_from(lists + filter + targeting.bytes()).unwrap_or(u64::MAX).saturating_add(256)
    }
}

/// The criteria that were made.
pub(in crate::sqlite) type CriteriaCache = Cache<Compiled, Arc<Criteria>, ByBytes>;

pub(in crate::sqlite) fn criteria_cache() -> CriteriaCache {
    Cache::with_weighter(CACHED_TARGETINGS, CACHED_BYTES, ByBytes)
}

impl Criteria {
    /// The criteria from the cache, made now if they are not there.
    pub(super) fn of(
        cache: &CriteriaCache,
        sql: &Connection,
        app: i64,
        targeting: &Targeting,
    ) -> Result<Arc<Self>, StoreError> {
        let version = "SELECT dictionary_version FROM app WHERE id = ?1";
        let version = sql.prepare_cached(version)?.query_row([app], |row| row.get(0))?;
        let key = Compiled(app, version, targeting.without_sample());
        if let Some(made) = cache.get(&key) {
            return Ok(made);
        }
        let made = Arc::new(Self::read(sql, app, targeting)?);
        cache.insert(key, Arc::clone(&made));
        Ok(made)
    }

    fn read(sql: &Connection, app: i64, targeting: &Targeting) -> Result<Self, StoreError> {
        let of = |(attribute, wanted): (Attribute, &[Box<str>])| {
            let mut codes = CodeSet::default();
            for value in wanted {
                add_codes(sql, app, attribute, value, &mut codes)?;
            }
            Ok((attribute, codes))
        };
        let lists = targeting.criteria().map(of).collect::<Result<_, StoreError>>()?;
        let filter = targeting.filter.as_ref().map(|filter| CodedFilter::read(sql, app, filter));
        Ok(Self { lists, filter: filter.transpose()? })
    }

    /// Returns true if no device can match.
    pub(super) fn matches_nothing(&self) -> bool {
        self.lists.iter().any(|(_, codes)| codes.is_empty())
    }

    /// Returns how many criteria there are.
    pub(super) fn len(&self) -> usize {
        self.lists.len() + usize::from(self.filter.is_some())
    }

    /// Returns true if a device row matches.
    pub(super) fn matches(&self, found: &DeviceRow<'_>) -> Result<bool, StoreError> {
        Ok(self.held_by(found)? == self.len())
    }

    /// Returns how many criteria a device row holds before the first that it does not hold.
    pub(super) fn held_by(&self, found: &DeviceRow<'_>) -> Result<usize, StoreError> {
        for (held, (attribute, wanted)) in self.lists.iter().enumerate() {
            if !found.code(*attribute)?.is_some_and(|code| wanted.has(code)) {
                return Ok(held);
            }
        }
        let held = self.lists.len();
        let Some(filter) = &self.filter else { return Ok(held) };
        let profile = if filter.reads_profile { found.profile()? } else { ProfileCodes::default() };
        Ok(held + usize::from(filter.holds(&found.codes()?, &profile)))
    }
}

/// Adds the codes of all values in the dictionary that match `wanted`.
fn add_codes(
    sql: &Connection,
    app: i64,
    attribute: Attribute,
    wanted: &str,
    codes: &mut CodeSet,
) -> Result<(), StoreError> {
    let (from, below) = candidates(attribute, wanted);
    let mut statement = sql.prepare_cached(
        "SELECT code, value FROM word
        WHERE app = ?1 AND attribute = ?2 AND value >= ?3 AND value < ?4",
    )?;
    let mut rows = statement.query(params![app, attribute.index() as i64, from, below])?;
    while let Some(row) = rows.next()? {
        let has = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        if attribute.matches(wanted, has) {
            codes.add(row.get(0)?);
        }
    }
    Ok(())
}

/// A range of values, in the order of their bytes, that contains every match of `wanted`.
fn candidates(attribute: Attribute, wanted: &str) -> (String, String) {
    match attribute {
        // Tags are ASCII.
        Attribute::Language if wanted == "*" => (String::new(), "\u{7f}".to_owned()),
        // The tag itself and all tags that begin with it and a hyphen; `.` is the character after
        // the hyphen.
        Attribute::Language => (wanted.to_owned(), format!("{wanted}.")),
        // The value alone: no value lies between it and itself with a NUL.
        _ => (wanted.to_owned(), format!("{wanted}\0")),
    }
}

/// A set of codes, one bit each.
#[derive(Debug, Clone, Default)]
pub(super) struct CodeSet(Vec<u64>);

impl CodeSet {
    fn position(code: i64) -> (usize, u64) {
        let code = usize::try_from(code).unwrap_or_default();
        (code / 64, 1 << (code % 64))
    }

    pub(super) fn add(&mut self, code: i64) {
        let (word, bit) = Self::position(code);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(word) {
            *bits |= bit;
        }
    }

    pub(super) fn has(&self, code: i64) -> bool {
        let (word, bit) = Self::position(code);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many bytes of memory it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}
