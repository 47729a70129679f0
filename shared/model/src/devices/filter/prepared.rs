//! Leaves that are asked about many values, such as all of a dictionary: what a leaf asks for is read once, and a value
//! once for all leaves about it. [`Leaf::wants`] is the definition.

use std::cmp::Ordering;

use super::{Leaf, Limit, Test};
use crate::custom::{Order, Ordered};

/// A value with its place in an order.
#[derive(Debug, Clone)]
pub struct RankedValue<'a> {
    text: &'a str,
    place: Option<Ordered<'a>>,
}

impl<'a> RankedValue<'a> {
    /// Reads a value for an order, if its column has one.
    pub fn new(order: Option<Order>, text: &'a str) -> Self {
        Self { text, place: order.and_then(|order| order.read(text)) }
    }

    /// The value as text.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Compares two values of one order. Those without a place in it come first, in the order of their bytes.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (&self.place, &other.place) {
            (Some(one), Some(other)) => one.partial_cmp(other).unwrap_or(Ordering::Equal),
            (one, two) => (one.is_some(), self.text).cmp(&(two.is_some(), other.text)),
        }
    }
}

/// A leaf whose values and limits were read.
#[derive(Debug, Clone)]
pub struct PreparedLeaf<'a> {
    leaf: &'a Leaf,
    test: Prepared<'a>,
}

#[derive(Debug, Clone)]
enum Prepared<'a> {
    /// A list that is compared as texts, by the leaf itself.
    Texts,
    /// A sorted list of versions.
    Versions(Vec<RankedValue<'a>>),
    Range {
        from: Option<End<'a>>,
        to: Option<End<'a>>,
    },
}

/// An end of a range.
#[derive(Debug, Clone)]
struct End<'a> {
    /// None if it has no place in the order: then nothing is on its side.
    place: Option<Ordered<'a>>,
    inclusive: bool,
}

impl<'a> End<'a> {
    fn new(order: Option<Order>, limit: &'a Limit) -> Self {
        let place = order.and_then(|order| order.read(&limit.value));
        Self { place, inclusive: limit.inclusive }
    }

    /// Returns true if a place is on this side of the end, or at an end that belongs to the range.
    fn has_on_side(&self, place: &Ordered<'_>, side: Ordering) -> bool {
        let compared = self.place.as_ref().and_then(|end| place.partial_cmp(end));
        compared == Some(side) || (self.inclusive && compared == Some(Ordering::Equal))
    }
}

impl Leaf {
    /// Reads what the leaf asks for.
    pub fn prepare(&self) -> PreparedLeaf<'_> {
        let test = match &self.test {
            Test::In(values) if self.order == Some(Order::Version) => Prepared::Versions(
                values.iter().map(|value| RankedValue::new(self.order, value)).collect(),
            ),
            Test::In(_) => Prepared::Texts,
            Test::Range { from, to } => {
                let end = |limit| End::new(self.order, limit);
                Prepared::Range { from: from.as_ref().map(end), to: to.as_ref().map(end) }
            }
        };
        PreparedLeaf { leaf: self, test }
    }
}

impl PreparedLeaf<'_> {
    /// As [`Leaf::wants`], of a value that was read for the leaf's order.
    pub fn wants(&self, has: &RankedValue<'_>) -> bool {
        match &self.test {
            Prepared::Texts => self.leaf.wants(has.text),
            Prepared::Versions(values) => {
                values.binary_search_by(|value| value.compare(has)).is_ok()
            }
            Prepared::Range { from, to } => {
                let Some(place) = &has.place else { return false };
                let within = |end: &Option<End<'_>>, side| {
                    end.as_ref().is_none_or(|end| end.has_on_side(place, side))
                };
                // As in the definition: without ends it has nothing.
                (from.is_some() || to.is_some())
                    && within(from, Ordering::Greater)
                    && within(to, Ordering::Less)
            }
        }
    }

    /// Returns about how many comparisons it makes with a value.
    pub fn comparisons(&self) -> usize {
        match &self.leaf.test {
            Test::In(values) => values.len().max(1).ilog2() as usize + 1,
            Test::Range { .. } => 2,
        }
    }
}
