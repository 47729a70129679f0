//! The filter of a targeting, by codes.
//!
//! A leaf becomes the set of codes whose values it wants. [`Leaf::prepare`] says which it wants, and
//! [`Filter::evaluate_with`] combines the leaves, so the result cannot differ from [`Filter::evaluate`]. A code that
//! the dictionary does not have stands for a value that was lost.

use std::{collections::BTreeSet, sync::Arc};

use push_model::{
    custom::Order,
    filter::{Column, Filter, Leaf, RankedValue, Truth},
};
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
        let mut leaves: Vec<CodedLeaf> = Vec::with_capacity(filter.leaves().len());
        for leaf in filter.leaves() {
            let wanted = CodeSet::default();
            leaves.push(CodedLeaf { column: leaf.column, wanted, known: Arc::default() });
        }
        let orders: BTreeSet<_> = filter.leaves().iter().map(|l| (l.column, l.order)).collect();
        for (column, order) in orders {
            let of_column = filter.leaves().iter().zip(&mut leaves);
            let of_column = of_column.filter(|(l, _)| (l.column, l.order) == (column, order));
            read_column(sql, app, (column, order), of_column.collect())?;
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

/// Reads the codes of a column, and for leaves with one order those of the values that they want. Each value is read once
/// for all leaves.
fn read_column(
    sql: &Connection,
    app: i64,
    (column, order): (Column, Option<Order>),
    leaves: Vec<(&Leaf, &mut CodedLeaf)>,
) -> Result<(), StoreError> {
    let attribute = number(column);
    let (mut all, mut searching, mut with_all) = (CodeSet::default(), Vec::new(), Vec::new());
    for (leaf, CodedLeaf { wanted, known, .. }) in leaves {
        match leaf.exact_values() {
            Some(values) => look_up(sql, app, attribute, values, wanted)?,
            None => searching.push((leaf.prepare(), wanted)),
        }
        with_all.push(known);
    }
    let read = "SELECT code, value FROM word WHERE app = ?1 AND attribute = ?2";
    let mut statement = sql.prepare_cached(read)?;
    let mut rows = statement.query([app, attribute])?;
    while let Some(row) = rows.next()? {
        let code = row.get(0)?;
        all.add(code);
        if searching.is_empty() {
            continue;
        }
        let value = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        let value = RankedValue::new(order, value);
        for (_, wanted) in searching.iter_mut().filter(|(leaf, _)| leaf.wants(&value)) {
            wanted.add(code);
        }
    }
    let all = Arc::new(all);
    with_all.into_iter().for_each(|known| *known = Arc::clone(&all));
    Ok(())
}

/// Adds the codes of those values that the dictionary has.
fn look_up(
    sql: &Connection,
    app: i64,
    attribute: i64,
    values: &[Box<str>],
    codes: &mut CodeSet,
) -> Result<(), StoreError> {
    let find = "SELECT code FROM word WHERE app = ?1 AND attribute = ?2 AND value = ?3";
    let mut statement = sql.prepare_cached(find)?;
    for value in values {
        let code = statement.query_row(params![app, attribute, value], |row| row.get(0));
        code.optional()?.into_iter().for_each(|code| codes.add(code));
    }
    Ok(())
}
