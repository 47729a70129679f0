//! Tables from the codes of a column to whether a device with the code matches a criterion.

use push_model::{
    attributes::Attribute,
    filter::{Column, Leaf, Truth},
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

    pub(super) fn wants(self, value: &str) -> bool {
        match self {
            Self::List(targeting, attribute) => targeting.wants(attribute, value),
            Self::Leaf(leaf) => leaf.wants(value),
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

    /// Decides about those codes from `from` to before `to` that the table does not know and the
    /// dictionary does.
    pub(super) fn complete(
        &mut self,
        criterion: Criterion<'_>,
        known: &Dictionary,
        from: usize,
        to: usize,
    ) {
        self.decide(known, from, to, |value| criterion.wants(value));
    }

    /// As [`Table::complete`], for a criterion that wants none of the values: those that it wants
    /// follow with [`Table::look_up`].
    pub(super) fn rule_out(&mut self, known: &Dictionary, from: usize, to: usize) {
        self.decide(known, from, to, |_| false);
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

    fn decide(&mut self, known: &Dictionary, from: usize, to: usize, wants: impl Fn(&str) -> bool) {
        let to = to.min(known.values().len() + 1);
        if self.by_code.len() < to {
            self.by_code.resize(to, UNKNOWN_CODE);
        }
        let codes = self.by_code.iter_mut().enumerate().take(to).skip(from.max(1));
        let values = known.values().skip(from.max(1) - 1);
        for ((_, decided), value) in codes.zip(values).filter(|((_, v), _)| **v == UNKNOWN_CODE) {
            if let Some(value) = value {
                *decided = if wants(value) { MATCH } else { NO_MATCH };
            }
        }
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
