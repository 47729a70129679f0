//! Filters on codes: the truth of each leaf for all slots of a block, combined by the least and the greatest of two
//! truths. So a leaf costs one table access a device, and `all`, `any` and `not` next to nothing.

use std::{cell::Cell, sync::Arc};

use push_model::filter::{Column as Name, Filter, Node, Truth};

use super::{
    criteria::{Column, OutdatedTables},
    slots::{BLOCK, Slots},
    table::{LOST, MATCH, Table, UNKNOWN_CODE},
};
use crate::redis::devices::{Codes, Section};

/// A column that the filter needs beside those of the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needed<'a> {
    /// The codes of an attribute.
    Codes(Name),
    /// The members of the topics with these codes: [`MEMBER`] for a slot that has one of them.
    Members(&'a [u16]),
}

/// A bit in the column of a topic's members: the device has one of the topics that are asked for.
const MEMBER: u8 = 1;

/// Another one: the device has a topic that the dictionary has lost.
pub(super) const HAS_LOST: u8 = 2;

/// How a filter is evaluated.
#[derive(Debug, Clone)]
pub(super) struct FilterPlan {
    filter: Arc<Filter>,
    /// The columns that it needs beside those of the lists; of topics with the codes that are asked for.
    needed: Vec<(Name, Vec<u16>)>,
    /// For each leaf the place of its column: those of the lists first, then those that are needed beside them.
    columns: Vec<usize>,
    /// A topic is wanted not to be there.
    negates_topics: bool,
}

/// The truth of each slot of a block.
type Truths = [u8];

/// What a filter is evaluated on.
struct Block<'a> {
    tables: &'a [Table],
    columns: &'a [Column<'a>],
    slots: &'a [u16],
    seen: Cell<u8>,
}

impl FilterPlan {
    /// Plans a filter with the tables of its leaves, beside lists on these columns. Which columns are needed, and their order,
    /// does not depend on what the tables know: columns that were read for one plan are used with a later one.
    pub(super) fn new(filter: Arc<Filter>, lists: &[Table], leaves: &[Table]) -> Self {
        let (mut needed, mut columns): (Vec<_>, Vec<usize>) =
            (Vec::new(), Vec::with_capacity(leaves.len()));
        for (number, (leaf, table)) in filter.leaves().iter().zip(leaves).enumerate() {
            let is_topic = table.column == Name::Topic;
            let same = filter.leaves().iter().take(number).position(|other| {
                other.column == leaf.column && (!is_topic || other.test == leaf.test)
            });
            let place = lists.iter().position(|list| list.column == table.column);
            let place = place.or_else(|| columns.get(same?).copied());
            columns.push(place.unwrap_or_else(|| {
                let codes = table.matching().filter(|_| is_topic).collect();
                needed.push((table.column, codes));
                lists.len() + needed.len() - 1
            }));
        }
        let negates_topics = negates_topics(filter.root(), leaves, false);
        Self { filter, needed, columns, negates_topics }
    }

    pub(super) fn needed(&self) -> impl Iterator<Item = Needed<'_>> {
        self.needed.iter().map(|(column, codes)| match column {
            Name::Topic => Needed::Members(codes),
            column => Needed::Codes(*column),
        })
    }

    /// Returns true if the columns that are needed do not tell which devices match: they do not show that a device has a
    /// topic that the dictionary has lost.
    pub(super) fn negates_topics(&self) -> bool {
        self.negates_topics
    }

    /// Keeps the slots that match. The columns are those of the lists and those that are needed. A slot beyond the end of
    /// a column lacks a value.
    pub(super) fn keep(&self, tables: &[Table], columns: &[Column<'_>], slots: &mut Slots) {
        slots.keep_where(|slots, truths| {
            let block = Block { tables, columns, slots, seen: Cell::new(0) };
            self.evaluate(self.filter.root(), &block, truths);
            block.seen.get()
        });
    }

    fn evaluate(&self, node: &Node, block: &Block<'_>, truths: &mut Truths) {
        match node {
            Node::Leaf(leaf) => self.leaf(*leaf, block, truths),
            Node::Not(node) => {
                self.evaluate(node, block, truths);
                truths.iter_mut().for_each(|truth| *truth = MATCH.saturating_sub(*truth));
            }
            Node::All(nodes) => self.combine(nodes, block, truths, u8::min),
            Node::Any(nodes) => self.combine(nodes, block, truths, u8::max),
        }
    }

    fn combine(
        &self,
        nodes: &[Node],
        block: &Block<'_>,
        truths: &mut Truths,
        of_two: impl Fn(u8, u8) -> u8,
    ) {
        let Some((first, others)) = nodes.split_first() else { return };
        self.evaluate(first, block, truths);
        let mut next = [0; BLOCK];
        let next = &mut next[..truths.len()];
        for node in others {
            self.evaluate(node, block, next);
            for (truth, next) in truths.iter_mut().zip(&*next) {
                *truth = of_two(*truth, *next);
            }
        }
    }

    fn leaf(&self, leaf: usize, block: &Block<'_>, truths: &mut Truths) {
        let place = self.columns.get(leaf);
        let (Some(table), Some(column)) =
            (block.tables.get(leaf), place.and_then(|place| block.columns.get(*place)))
        else {
            return truths.fill(UNKNOWN_CODE);
        };
        let Column { low, high } = column;
        let slots = block.slots;
        match table.narrow() {
            _ if table.column == Name::Topic => {
                look(slots, low, truths, |_, members| {
                    ((members & MEMBER) * MATCH).max((members & HAS_LOST) / HAS_LOST * LOST)
                });
            }
            Some(narrow) if high.is_empty() => {
                look(slots, low, truths, |_, code| narrow[usize::from(code)]);
            }
            _ => look(slots, low, truths, |slot, low| {
                let high = high.get(slot).copied().unwrap_or_default();
                table.value_of(u16::from_be_bytes([high, low]))
            }),
        }
        block.seen.set(truths.iter().fold(block.seen.get(), |seen, truth| seen | truth));
    }

    /// Decides about one device.
    pub(super) fn accepts(
        &self,
        tables: &[Table],
        codes: &Codes,
        profile: Section<'_>,
    ) -> Result<bool, OutdatedTables> {
        let is_outdated = Cell::new(false);
        let truth = self.filter.evaluate_with(|leaf| {
            let Some(table) = tables.get(leaf) else { return Truth::Unknown };
            let value = match table.column {
                Name::BuiltIn(attribute) => table.value_of(codes[attribute.index()]),
                Name::Custom(id) => table.value_of(profile.code_of(id)),
                Name::Topic => value_of_topics(table, profile),
            };
            match value {
                0 => Truth::False,
                MATCH => Truth::True,
                UNKNOWN_CODE => {
                    is_outdated.set(true);
                    Truth::Unknown
                }
                _ => Truth::Unknown,
            }
        });
        if is_outdated.get() { Err(OutdatedTables) } else { Ok(truth == Truth::True) }
    }
}

/// Reads the truth of each slot by its low byte, which is 0 beyond the end of the column. Slots that are next to each other
/// are read without looking at their numbers.
fn look(slots: &[u16], low: &[u8], truths: &mut Truths, truth_of: impl Fn(usize, u8) -> u8) {
    let (Some(first), Some(last)) = (slots.first(), slots.last()) else { return };
    let (first, last) = (usize::from(*first), usize::from(*last));
    if last - first + 1 == slots.len() {
        let low = low.get(first..).unwrap_or_default();
        let (within, beyond) = truths.split_at_mut(low.len().min(truths.len()));
        for ((truth, byte), slot) in within.iter_mut().zip(low).zip(first..) {
            *truth = truth_of(slot, *byte);
        }
        for (truth, slot) in beyond.iter_mut().zip(first + low.len()..) {
            *truth = truth_of(slot, 0);
        }
    } else {
        for (truth, slot) in truths.iter_mut().zip(slots) {
            let slot = usize::from(*slot);
            *truth = truth_of(slot, low.get(slot).copied().unwrap_or_default());
        }
    }
}

/// The greatest value of the device's topics. One that is wanted decides, whatever the others are.
fn value_of_topics(table: &Table, profile: Section<'_>) -> u8 {
    let mut value = 0;
    for code in profile.topics() {
        match table.value_of(code) {
            MATCH => return MATCH,
            other => value = value.max(other),
        }
    }
    value
}

fn negates_topics(node: &Node, leaves: &[Table], is_negated: bool) -> bool {
    match node {
        Node::Leaf(leaf) => {
            is_negated && leaves.get(*leaf).is_some_and(|table| table.column == Name::Topic)
        }
        Node::Not(node) => negates_topics(node, leaves, !is_negated),
        Node::All(nodes) | Node::Any(nodes) => {
            nodes.iter().any(|node| negates_topics(node, leaves, is_negated))
        }
    }
}
