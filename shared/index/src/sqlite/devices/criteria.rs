//! Targeting by codes.
//!
//! For each scan, a criterion becomes the set of codes whose values match it. Values are looked up
//! in ranges of the dictionary's index that contain all matches, and [`Attribute::matches`] decides
//! about each of them, so the result cannot differ from [`Targeting::matches`].

use push_model::{attributes::Attribute, targeting::Targeting};
use push_sqlite::StoreError;
use rusqlite::{Connection, Row, params};

/// The first column with a code among those that [`super::scan`] selects.
pub(super) const FIRST_CODE: usize = 5;

/// The criteria of a targeting, as codes of one app.
pub(super) struct Criteria(Vec<(Attribute, CodeSet)>);

impl Criteria {
    pub(super) fn read(
        sql: &Connection,
        app: i64,
        targeting: &Targeting,
    ) -> Result<Self, StoreError> {
        let of = |(attribute, wanted): (Attribute, &[Box<str>])| {
            let mut codes = CodeSet::default();
            for value in wanted {
                add_codes(sql, app, attribute, value, &mut codes)?;
            }
            Ok((attribute, codes))
        };
        targeting.criteria().map(of).collect::<Result<_, StoreError>>().map(Self)
    }

    /// Whether no device can match.
    pub(super) fn matches_nothing(&self) -> bool {
        self.0.iter().any(|(_, codes)| codes.is_empty())
    }

    /// Whether a device row matches.
    pub(super) fn matches(&self, row: &Row<'_>) -> Result<bool, StoreError> {
        for (attribute, codes) in &self.0 {
            match row.get::<_, Option<i64>>(FIRST_CODE + attribute.index())? {
                Some(code) if codes.has(code) => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
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
#[derive(Default)]
struct CodeSet(Vec<u64>);

impl CodeSet {
    fn position(code: i64) -> (usize, u64) {
        let code = usize::try_from(code).unwrap_or_default();
        (code / 64, 1 << (code % 64))
    }

    fn add(&mut self, code: i64) {
        let (word, bit) = Self::position(code);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(word) {
            *bits |= bit;
        }
    }

    fn has(&self, code: i64) -> bool {
        let (word, bit) = Self::position(code);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
