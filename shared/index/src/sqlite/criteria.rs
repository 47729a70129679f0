//! Targeting over codes.
//!
//! A criterion becomes the set of codes whose values it means, once for each page. The values are
//! found by ranges of the dictionary's index that hold all of them, and what decides about each
//! is [`Attribute::matches`], so this cannot differ from [`Targeting::matches`].

use push_model::{attributes::Attribute, targeting::Targeting};
use push_sqlite::StoreError;
use rusqlite::{Connection, Row, params};

/// The first column of a device row that holds a code, when all are selected by
/// [`super::scan`].
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
    pub(super) fn is_hopeless(&self) -> bool {
        self.0.iter().any(|(_, codes)| codes.is_empty())
    }

    /// Whether a device row is meant.
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

/// Adds the codes of all values of the dictionary that `wanted` means.
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

/// A range of values, in the order of their bytes, that holds everything that `wanted` can mean.
fn candidates(attribute: Attribute, wanted: &str) -> (String, String) {
    match attribute {
        // Tags are ASCII.
        Attribute::Language if wanted == "*" => (String::new(), "\u{7f}".to_owned()),
        // The tag itself and all that begin with it and a hyphen; `.` comes after the hyphen.
        Attribute::Language => (wanted.to_owned(), format!("{wanted}.")),
        // The value itself; there is nothing between it and itself with a NUL.
        _ => (wanted.to_owned(), format!("{wanted}\0")),
    }
}

/// A set of codes, one bit each.
#[derive(Default)]
struct CodeSet(Vec<u64>);

impl CodeSet {
    fn place(code: i64) -> (usize, u64) {
        let code = usize::try_from(code).unwrap_or_default();
        (code / 64, 1 << (code % 64))
    }

    fn add(&mut self, code: i64) {
        let (word, bit) = Self::place(code);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(word) {
            *bits |= bit;
        }
    }

    fn has(&self, code: i64) -> bool {
        let (word, bit) = Self::place(code);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
