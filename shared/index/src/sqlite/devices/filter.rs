//! The filter of a targeting, by codes.
//!
//! A leaf becomes the set of codes whose values it wants. [`Leaf::wants`] decides about each value, and
//! [`Filter::evaluate_with`] combines the leaves, so the result cannot differ from [`Filter::evaluate`]. A code that
//! the dictionary does not have stands for a value that was lost.

use std::{collections::HashMap, sync::Arc};

use push_model::filter::{Column, Filter, Leaf, Truth};
use push_sqlite::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    criteria::CodeSet,
    dictionary::{Codes, number},
    profile::ProfileCodes,
};

/// A filter, by the codes of one app.
#[derive(Debug)]
pub(super) struct CodedFilter {
    filter: Arc<Filter>,
    /// By their positions in the filter.
    leaves: Vec<CodedLeaf>,
    /// Returns true if a leaf is about a custom attribute or topics.
    pub(super) reads_profile: bool,
}

/// The codes that hold in one leaf, of those that there are.
#[derive(Debug)]
struct CodedLeaf {
    column: Column,
    wanted: CodeSet,
    known: Arc<CodeSet>,
}

impl CodedFilter {
    pub(super) fn read(
        sql: &Connection,
        app: i64,
        filter: &Arc<Filter>,
    ) -> Result<Self, StoreError> {
        let mut known = HashMap::new();
        let mut leaves = Vec::with_capacity(filter.leaves().len());
        for leaf in filter.leaves() {
            let known = match known.get(&leaf.column) {
                Some(known) => Arc::clone(known),
                None => {
                    let codes = Arc::new(codes(sql, app, leaf.column)?);
                    known.insert(leaf.column, Arc::clone(&codes));
                    codes
                }
            };
            let wanted = wanted(sql, app, leaf)?;
            leaves.push(CodedLeaf { column: leaf.column, wanted, known });
        }
        let is_built_in = |leaf: &CodedLeaf| matches!(leaf.column, Column::BuiltIn(_));
        let reads_profile = !leaves.iter().all(is_built_in);
        Ok(Self { filter: Arc::clone(filter), leaves, reads_profile })
    }

    /// Returns how many bytes of memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.leaves.iter().map(|leaf| leaf.wanted.bytes() + leaf.known.bytes()).sum()
    }

    /// Returns true if a device with these codes matches.
    pub(super) fn holds(&self, codes: &Codes, profile: &ProfileCodes) -> bool {
        let truth = |position: usize| {
            let leaf = self.leaves.get(position);
            leaf.map_or(Truth::Unknown, |leaf| leaf.truth(codes, profile))
        };
        self.filter.evaluate_with(truth) == Truth::True
    }
}

impl CodedLeaf {
    fn truth(&self, codes: &Codes, profile: &ProfileCodes) -> Truth {
        let of = |code: i64| {
            if self.wanted.has(code) {
                Truth::True
            } else if self.known.has(code) {
                Truth::False
            } else {
                Truth::Unknown
            }
        };
        match self.column {
            Column::BuiltIn(attribute) => {
                codes.get(attribute.index()).copied().flatten().map_or(Truth::False, of)
            }
            Column::Custom(id) => profile.custom(id).map_or(Truth::False, |code| of(code.into())),
            Column::Topic => {
                let topics = profile.topics().iter();
                topics.map(|code| of(i64::from(*code))).max().unwrap_or(Truth::False)
            }
        }
    }
}

/// All codes of a column.
fn codes(sql: &Connection, app: i64, column: Column) -> Result<CodeSet, StoreError> {
    let read = "SELECT code FROM word WHERE app = ?1 AND attribute = ?2";
    let mut codes = CodeSet::default();
    let mut statement = sql.prepare_cached(read)?;
    let mut rows = statement.query([app, number(column)])?;
    while let Some(row) = rows.next()? {
        codes.add(row.get(0)?);
    }
    Ok(codes)
}

/// The codes of the values that a leaf wants.
fn wanted(sql: &Connection, app: i64, leaf: &Leaf) -> Result<CodeSet, StoreError> {
    let attribute = number(leaf.column);
    let mut codes = CodeSet::default();
    if let Some(values) = leaf.exact_values() {
        let find = "SELECT code FROM word WHERE app = ?1 AND attribute = ?2 AND value = ?3";
        let mut statement = sql.prepare_cached(find)?;
        for value in values {
            let code = statement.query_row(params![app, attribute, value], |row| row.get(0));
            code.optional()?.into_iter().for_each(|code| codes.add(code));
        }
        return Ok(codes);
    }
    let read = "SELECT code, value FROM word WHERE app = ?1 AND attribute = ?2";
    let mut statement = sql.prepare_cached(read)?;
    let mut rows = statement.query([app, attribute])?;
    while let Some(row) = rows.next()? {
        if leaf.wants(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?) {
            codes.add(row.get(0)?);
        }
    }
    Ok(codes)
}
