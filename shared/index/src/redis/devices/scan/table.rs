//! Tables from the codes of a column to whether a device with the code matches a criterion.

use push_model::{
    attributes::Attribute,
    custom::Order,
    filter::{Column, Leaf, PreparedLeaf, RankedValue, Truth},
    targeting::Targeting,
};

use crate::redis::dictionary::Dictionary;

// The values of a table: those of `Truth`, and a bit of its own, because a scan ORs those that it has seen.
/// A device with this code does not match.
pub(super) const NO_MATCH: u8 = Truth::False as u8;
/// The dictionary has lost the value of this code.
pub(super) const LOST: u8 = Truth::Unknown as u8;
/// A device with this code matches.
pub(super) const MATCH: u8 = Truth::True as u8;
/// The dictionary did not have this code when the table was made.
pub(super) const UNKNOWN_CODE: u8 = 4;

/// The number of codes that one byte can express.
pub(super) const NARROW: usize = 1 << 8;

/// What a table decides about: a list of a targeting, or a leaf of its filter.
#[derive(Debug, Clone, Copy)]
pub(super) enum Criterion<'a> {
    List(&'a Targeting, Attribute),
    Leaf(&'a Leaf),
}

/// The criteria of a targeting: its lists, then the leaves of its filter.
pub(super) fn criteria_of(targeting: &Targeting) -> impl Iterator<Item = Criterion<'_>> {
    let lists = targeting.criteria().map(|(attribute, _)| Criterion::List(targeting, attribute));
    let leaves = targeting.filter.iter().flat_map(|filter| filter.leaves());
    lists.chain(leaves.map(Criterion::Leaf))
}

impl<'a> Criterion<'a> {
    pub(super) fn column(self) -> Column {
        match self {
            Self::List(_, attribute) => Column::BuiltIn(attribute),
            Self::Leaf(leaf) => leaf.column,
        }
    }

    /// The order of the column's values, as far as the criterion needs it.
    pub(super) fn order(self) -> Option<Order> {
        match self {
            Self::List(..) => None,
            Self::Leaf(leaf) => leaf.order,
        }
    }

    /// The only values that it wants, if it wants exactly what equals one of them.
    pub(super) fn exact_values(self) -> Option<&'a [Box<str>]> {
        match self {
            Self::List(targeting, attribute) => {
                attribute.is_exact().then(|| targeting.wanted(attribute))
            }
            Self::Leaf(leaf) => leaf.exact_values(),
        }
    }
}

/// A criterion that is asked about all values of a dictionary.
#[derive(Debug)]
enum Prepared<'a> {
    List(&'a Targeting, Attribute),
    Leaf(PreparedLeaf<'a>),
}

impl<'a> Prepared<'a> {
    fn new(criterion: Criterion<'a>) -> Self {
        match criterion {
            Criterion::List(targeting, attribute) => Self::List(targeting, attribute),
            Criterion::Leaf(leaf) => Self::Leaf(leaf.prepare()),
        }
    }

    fn wants(&self, value: &RankedValue<'_>) -> bool {
        match self {
            Self::List(targeting, attribute) => targeting.wants(*attribute, value.text()),
            Self::Leaf(leaf) => leaf.wants(value),
        }
    }

    fn comparisons(&self) -> usize {
        match self {
            Self::List(targeting, attribute) => {
                targeting.wanted(*attribute).len().max(1).ilog2() as usize + 1
            }
            Self::Leaf(leaf) => leaf.comparisons(),
        }
    }
}

/// What reading a value for its order costs, in comparisons of two values.
const READING: usize = 8;

/// Tables of one column and order, with their criteria. Each value of the dictionary is read once for all of them.
#[derive(Debug)]
pub(super) struct TableGroup<'t, 'a> {
    pub(super) column: Column,
    order: Option<Order>,
    tables: Vec<(&'t mut Table, Prepared<'a>)>,
}

impl<'t, 'a> TableGroup<'t, 'a> {
    /// A group that a criterion may be added to.
    pub(super) fn of(criterion: Criterion<'_>) -> Self {
        Self { column: criterion.column(), order: criterion.order(), tables: Vec::new() }
    }

    /// Returns true if a criterion belongs to the group.
    pub(super) fn takes(&self, criterion: Criterion<'_>) -> bool {
        self.column == criterion.column() && self.order == criterion.order()
    }

    /// Adds a criterion and its table.
    pub(super) fn add(&mut self, table: &'t mut Table, criterion: Criterion<'a>) {
        self.tables.push((table, Prepared::new(criterion)));
    }

    /// Returns about how much work a value is, in comparisons.
    pub(super) fn comparisons(&self) -> usize {
        READING + self.tables.iter().map(|(_, criterion)| criterion.comparisons()).sum::<usize>()
    }

    /// Decides about those codes from `from` to before `to` that a table does not know and the dictionary does.
    pub(super) fn complete(&mut self, known: &Dictionary, from: usize, to: usize) {
        let (from, to) = (from.max(1), to.min(known.values().len() + 1));
        for (table, _) in &mut self.tables {
            table.cover(to);
        }
        for (code, value) in (from..to).zip(known.values_from(from)) {
            let Some(value) = value else { continue };
            let mut ranked = None;
            for (table, criterion) in &mut self.tables {
                if let Some(decided) = table.by_code.get_mut(code)
                    && *decided == UNKNOWN_CODE
                {
                    let value = ranked.get_or_insert_with(|| RankedValue::new(self.order, value));
                    *decided = if criterion.wants(value) { MATCH } else { NO_MATCH };
                }
            }
        }
    }
}

/// One criterion: for each code in the dictionary, whether a device with it matches. It covers at least
/// the codes of one byte.
#[derive(Debug, Clone)]
pub(in crate::redis) struct Table {
    pub(super) column: Column,
    by_code: Vec<u8>,
    /// The value for codes beyond the end of `by_code`.
    otherwise: u8,
}

impl Table {
    /// A table that knows no code but 0: that the device lacks the attribute.
    pub(super) fn new(column: Column) -> Self {
        Self::of(column, vec![NO_MATCH])
    }

    pub(super) fn of(column: Column, mut by_code: Vec<u8>) -> Self {
        by_code.resize(by_code.len().max(NARROW), UNKNOWN_CODE);
        Self { column, by_code, otherwise: UNKNOWN_CODE }
    }

    /// Decides about those codes from `from` to before `to` that the table does not know and the dictionary does, for a
    /// criterion that wants none of the values: those that it wants follow with [`Table::look_up`].
    pub(super) fn rule_out(&mut self, known: &Dictionary, from: usize, to: usize) {
        let (from, to) = (from.max(1), to.min(known.values().len() + 1));
        self.cover(to);
        for (code, value) in (from..to).zip(known.values_from(from)) {
            if let Some(decided) = self.by_code.get_mut(code)
                && *decided == UNKNOWN_CODE
                && value.is_some()
            {
                *decided = NO_MATCH;
            }
        }
    }

    /// Makes room for the codes before this one.
    fn cover(&mut self, to: usize) {
        if self.by_code.len() < to {
            self.by_code.resize(to, UNKNOWN_CODE);
        }
    }

    /// Decides that devices with one of these values match, if the table covers its code.
    pub(super) fn look_up(&mut self, wanted: &[Box<str>], known: &Dictionary) {
        for value in wanted {
            if let Some(code) = known.code(value).filter(|code| known.has(*code, value))
                && let Some(decided) = self.by_code.get_mut(usize::from(code))
            {
                *decided = MATCH;
            }
        }
    }

    /// Returns how many codes below this one the table does not cover. It covers [`NARROW`] from
    /// the beginning.
    pub(super) fn missing(&self, codes: usize) -> usize {
        codes.saturating_sub(self.by_code.len())
    }

    /// Takes every code that the dictionary lacks for one that it has lost.
    pub(super) fn settle(&mut self) {
        self.otherwise = LOST;
        self.by_code.iter_mut().filter(|v| **v == UNKNOWN_CODE).for_each(|v| *v = LOST);
    }

    /// Returns how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.by_code.len()
    }

    /// Returns true if a code may have two bytes.
    pub(super) fn is_wide(&self) -> bool {
        self.by_code.len() > NARROW
    }

    /// Returns what is decided about each code.
    #[cfg(test)]
    pub(super) fn decisions(&self) -> &[u8] {
        &self.by_code
    }

    /// The codes of devices that match.
    pub(super) fn matching(&self) -> impl Iterator<Item = u16> {
        let decided = (0..=u16::MAX).zip(&self.by_code);
        decided.filter(|(_, value)| **value == MATCH).map(|(code, _)| code)
    }

    pub(super) fn value_of(&self, code: u16) -> u8 {
        self.by_code.get(usize::from(code)).copied().unwrap_or(self.otherwise)
    }

    /// What is decided about the codes of one byte.
    pub(super) fn narrow(&self) -> Option<&[u8; NARROW]> {
        self.by_code.first_chunk()
    }
}
