//! An expression over a device's attributes and topics.
//!
//! It is evaluated with three values, because two things are told apart. A value that a device lacks makes a
//! leaf [`Truth::False`], so its `not` is true. A value that the index has lost makes it [`Truth::Unknown`]: it may
//! have been any value, so neither the leaf nor its `not` holds. A device matches if the whole is true.
//!
//! [`Filter::evaluate`] is the definition. The engines evaluate it on codes and are tested against it.
//!
//! - `prepared`: leaves for many values
//! - `sample`: a share of the devices

mod prepared;
mod sample;

use std::{cmp::Ordering, sync::Arc};

use serde::{Deserialize, Serialize};

pub use self::{
    prepared::{PreparedLeaf, RankedValue},
    sample::Sample,
};
use crate::{
    attributes::{Attribute, Attributes},
    custom::{CustomId, Declarations, Order},
    profile::Profile,
};

/// The most leaves of a filter.
pub const MAX_LEAVES: usize = 64;

/// The most `all`, `any` and `not` around a leaf.
pub const MAX_LEVELS: usize = 6;

/// The result of a filter or of a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Truth {
    /// It does not hold.
    False = 0,
    /// It cannot be known, because the index lost a value.
    Unknown = 1,
    /// It holds.
    True = 2,
}

impl Truth {
    /// The opposite; what cannot be known stays unknown.
    #[must_use]
    pub const fn negate(self) -> Self {
        match self {
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
            Self::True => Self::False,
        }
    }
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// What a leaf is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// One of the six attributes.
    BuiltIn(Attribute),
    /// An attribute of the app's own.
    Custom(CustomId),
    /// The topics. A device has any number of them.
    Topic,
}

impl Column {
    /// The name that the app's operator knows.
    pub fn name(self, declared: &Declarations) -> &str {
        match self {
            Self::BuiltIn(attribute) => attribute.name(),
            Self::Custom(id) => declared
                .by_id(id)
                .map_or("an attribute that is not declared", |declared| declared.name.as_str()),
            Self::Topic => "topics",
        }
    }
}

/// One end of a range of values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limit {
    /// A normalised value.
    pub value: Arc<str>,
    /// True if the value itself is in the range.
    pub inclusive: bool,
}

/// What a leaf asks of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// It is one of these, normalised.
    In(Vec<Box<str>>),
    /// It lies between these, in the column's order; at least one of them is given.
    Range {
        /// The lower end.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        from: Option<Limit>,
        /// The upper end.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        to: Option<Limit>,
    },
}

/// One test of a filter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Leaf {
    /// What it is about.
    pub column: Column,
    /// The order of the column's values, if they have one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub order: Option<Order>,
    /// What it asks.
    pub test: Test,
}

impl Leaf {
    /// A leaf about a value; sorts what it asks for, so that [`Leaf::wants`] is a binary search. The values must be
    /// normalised: by [`Attribute::normalise_wanted`] or [`ValueType::normalise`](crate::custom::ValueType::normalise).
    pub fn new(column: Column, order: Option<Order>, mut test: Test) -> Self {
        if let Test::In(values) = &mut test {
            match (column, order) {
                // Versions that are written differently may be equal.
                (_, Some(Order::Version)) => {
                    let mut ranked: Vec<_> =
                        values.iter().map(|value| RankedValue::new(order, value)).collect();
                    ranked.sort_by(RankedValue::compare);
                    ranked.dedup_by(|a, b| a.compare(b).is_eq());
                    *values = ranked.iter().map(|ranked| ranked.text().into()).collect();
                }
                (Column::BuiltIn(attribute), _) => {
                    values.sort_unstable();
                    values.dedup_by(|value, kept| attribute.matches(kept, value));
                }
                _ => {
                    values.sort_unstable();
                    values.dedup();
                }
            }
        }
        Self { column, order, test }
    }

    /// The order in which the filter compares a built-in attribute: `os_version` as numbers, `app_version` as versions.
    pub const fn order_of(attribute: Attribute) -> Option<Order> {
        match attribute {
            Attribute::OsVersion => Some(Order::Number),
            Attribute::AppVersion => Some(Order::Version),
            Attribute::Country | Attribute::Language | Attribute::Brand | Attribute::Model => None,
        }
    }

    /// Returns true if the leaf holds for a device that has this value, or this topic.
    pub fn wants(&self, has: &str) -> bool {
        match (&self.test, self.column) {
            (Test::In(values), _) if self.order == Some(Order::Version) => {
                let has = RankedValue::new(self.order, has);
                let found = values
                    .binary_search_by(|value| RankedValue::new(self.order, value).compare(&has));
                found.is_ok()
            }
            (Test::In(values), Column::BuiltIn(attribute)) => {
                // No value covers another, so only the last one that is not behind `has` can cover it.
                let last = values.partition_point(|value| **value <= *has).checked_sub(1);
                last.and_then(|at| values.get(at))
                    .is_some_and(|value| attribute.matches(value, has))
            }
            (Test::In(values), _) => values.binary_search_by(|value| (**value).cmp(has)).is_ok(),
            (Test::Range { from, to }, _) => {
                let Some(order) = self.order else { return false };
                let within = |limit: &Limit, side: Ordering| {
                    let compared = order.compare(has, &limit.value);
                    compared == Some(side) || (limit.inclusive && compared == Some(Ordering::Equal))
                };
                // A value without a place in the order lies in no range, not even in one without ends.
                (from.is_some() || to.is_some())
                    && from.as_ref().is_none_or(|limit| within(limit, Ordering::Greater))
                    && to.as_ref().is_none_or(|limit| within(limit, Ordering::Less))
            }
        }
    }

    /// Returns the only values that the leaf wants, if a value is wanted exactly if it equals one of them byte by byte.
    pub fn exact_values(&self) -> Option<&[Box<str>]> {
        let compares_bytes = self.order != Some(Order::Version)
            && !matches!(self.column, Column::BuiltIn(attribute) if !attribute.is_exact());
        match &self.test {
            Test::In(values) if compares_bytes => Some(values),
            Test::In(_) | Test::Range { .. } => None,
        }
    }

    /// Returns whether the leaf holds for a device.
    pub fn evaluate(&self, attributes: &Attributes, profile: &Profile) -> Truth {
        let holds = match self.column {
            Column::BuiltIn(attribute) => {
                attributes.get(attribute).is_some_and(|has| self.wants(has))
            }
            Column::Custom(id) => profile.get(id).is_some_and(|has| self.wants(has)),
            Column::Topic => profile.topics.iter().any(|topic| self.wants(topic.as_str())),
        };
        holds.into()
    }

    /// Returns how many values it has.
    fn len(&self) -> usize {
        match &self.test {
            Test::In(values) => values.len(),
            Test::Range { from, to } => usize::from(from.is_some()) + usize::from(to.is_some()),
        }
    }

    fn bytes(&self) -> usize {
        let values: usize = match &self.test {
            Test::In(values) => {
                values.iter().map(|value| value.len() + size_of::<Box<str>>()).sum()
            }
            Test::Range { from, to } => {
                from.iter().chain(to).map(|limit| limit.value.len() + size_of::<Limit>()).sum()
            }
        };
        values + size_of::<Self>()
    }
}

/// The structure of a filter over its leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Node {
    /// Every part holds.
    All(Vec<Node>),
    /// A part holds.
    Any(Vec<Node>),
    /// The part does not hold.
    Not(Box<Node>),
    /// The leaf with this position holds.
    Leaf(usize),
}

/// Why a filter cannot be made; the message is for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadFilter {
    /// More than [`MAX_LEAVES`].
    #[error("must have at most {MAX_LEAVES} tests")]
    Leaves,
    /// More than [`MAX_LEVELS`].
    #[error("must be nested at most {MAX_LEVELS} levels deep")]
    Levels,
    /// An empty list, which could be read as everything or as nothing.
    #[error("must not have an empty list")]
    EmptyList,
    /// A node names no leaf.
    #[error("refers to a test that it does not have")]
    NoLeaf,
}

/// A filter: its leaves, and how they are combined. Within the bounds [`MAX_LEAVES`] and [`MAX_LEVELS`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Filter {
    leaves: Vec<Leaf>,
    root: Node,
}

#[derive(Deserialize)]
struct Parts {
    leaves: Vec<Leaf>,
    root: Node,
}

impl TryFrom<Parts> for Filter {
    type Error = BadFilter;

    fn try_from(Parts { leaves, root }: Parts) -> Result<Self, BadFilter> {
        Self::new(leaves, root)
    }
}

impl Filter {
    /// Makes a filter of leaves and nodes that name them by their position.
    ///
    /// # Errors
    /// If a bound is exceeded, a list is empty, or a node names no leaf.
    pub fn new(leaves: Vec<Leaf>, root: Node) -> Result<Self, BadFilter> {
        if leaves.len() > MAX_LEAVES {
            return Err(BadFilter::Leaves);
        }
        let is_empty = |leaf: &Leaf| matches!(&leaf.test, Test::In(values) if values.is_empty());
        if leaves.iter().any(is_empty) {
            return Err(BadFilter::EmptyList);
        }
        let mut named = 0;
        check(&root, leaves.len(), MAX_LEVELS, &mut named)?;
        Ok(Self { leaves, root })
    }

    /// The leaves.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// How they are combined.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Returns how many values all leaves have together.
    pub fn len(&self) -> usize {
        self.leaves.iter().map(Leaf::len).sum()
    }

    /// Returns false: a filter has a leaf.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Returns how many bytes of memory it takes, about.
    pub fn bytes(&self) -> usize {
        self.leaves.iter().map(Leaf::bytes).sum()
    }

    /// Returns the result for a device of which no value was lost.
    pub fn evaluate(&self, attributes: &Attributes, profile: &Profile) -> Truth {
        self.evaluate_with(|leaf| {
            self.leaves.get(leaf).map_or(Truth::Unknown, |leaf| leaf.evaluate(attributes, profile))
        })
    }

    /// Returns the result, given that of each leaf by its position.
    pub fn evaluate_with(&self, leaf: impl Fn(usize) -> Truth) -> Truth {
        self.root.evaluate(&leaf)
    }
}

impl Node {
    fn evaluate(&self, leaf: &impl Fn(usize) -> Truth) -> Truth {
        match self {
            Self::All(nodes) => nodes.iter().map(|n| n.evaluate(leaf)).min().unwrap_or(Truth::True),
            Self::Any(nodes) => {
                nodes.iter().map(|n| n.evaluate(leaf)).max().unwrap_or(Truth::False)
            }
            Self::Not(node) => node.evaluate(leaf).negate(),
            Self::Leaf(position) => leaf(*position),
        }
    }
}

/// Checks a node with so many levels left. `named` counts the leaves that were named, so that a filter cannot be
/// larger than its leaves.
fn check(node: &Node, leaves: usize, levels: usize, named: &mut usize) -> Result<(), BadFilter> {
    let below = |levels: usize| levels.checked_sub(1).ok_or(BadFilter::Levels);
    match node {
        Node::Leaf(position) => {
            *named += 1;
            if *named > MAX_LEAVES {
                return Err(BadFilter::Leaves);
            }
            if *position < leaves { Ok(()) } else { Err(BadFilter::NoLeaf) }
        }
        Node::Not(node) => check(node, leaves, below(levels)?, named),
        Node::All(nodes) | Node::Any(nodes) => {
            let levels = below(levels)?;
            if nodes.is_empty() {
                return Err(BadFilter::EmptyList);
            }
            nodes.iter().try_for_each(|node| check(node, leaves, levels, named))
        }
    }
}

#[cfg(test)]
mod tests;
