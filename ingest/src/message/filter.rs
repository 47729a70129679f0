//! `condition.targeting.filter`: tests of attributes and topics, combined with `all`, `any` and `not`.
//!
//! Each node is read with its parts as raw JSON. So the levels and the tests are counted before anything below
//! is read, however deep the JSON is. Unknown members are errors here, as everywhere in a condition.
//!
//! Names are replaced by the ids of the app's declarations, and values by the form in which devices have them.

use push_model::{
    attributes::Attribute,
    custom::{Declaration, Declarations, Order, is_version},
    filter::{BadFilter, Column, Filter, Leaf, Limit, MAX_LEAVES, MAX_LEVELS, Node, Test},
    ids::Topic,
    text::Text,
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    json::{Object, illegal, read_object, read_value},
    notes::{near, shown},
};
use crate::rejection::Rejection;

const PATH: &str = "condition.targeting.filter";

/// A node, with the members of all kinds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFields<'a> {
    #[serde(borrow)]
    all: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    any: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    not: Option<&'a RawValue>,
    #[serde(borrow)]
    attribute: Option<Text<'a>>,
    #[serde(borrow)]
    topic: Option<Text<'a>>,
    #[serde(borrow, rename = "in")]
    one_of: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    gt: Option<&'a RawValue>,
    #[serde(borrow)]
    gte: Option<&'a RawValue>,
    #[serde(borrow)]
    lt: Option<&'a RawValue>,
    #[serde(borrow)]
    lte: Option<&'a RawValue>,
}

/// Reads a filter of an app that declares these attributes.
pub(super) fn read_filter(raw: &RawValue, declared: &Declarations) -> Result<Filter, Rejection> {
    let mut reader = Reader { declared, leaves: Vec::new() };
    let root = reader.node(raw, PATH, MAX_LEVELS)?;
    Filter::new(reader.leaves, root).map_err(|bad| bad_filter(PATH, bad))
}

struct Reader<'d> {
    declared: &'d Declarations,
    leaves: Vec<Leaf>,
}

impl Reader<'_> {
    /// Reads a node around which so many levels are left.
    fn node(&mut self, raw: &RawValue, path: &str, levels: usize) -> Result<Node, Rejection> {
        let Object(fields, _) = read_object::<NodeFields<'_>>(raw.get(), path)?;
        let asks = [
            ("in", fields.one_of.is_some()),
            ("gt", fields.gt.is_some()),
            ("gte", fields.gte.is_some()),
            ("lt", fields.lt.is_some()),
            ("lte", fields.lte.is_some()),
        ];
        if fields.attribute.is_none()
            && let Some((name, _)) = asks.iter().find(|(_, is_given)| *is_given)
        {
            return Err(illegal(format!("{path}.{name} needs attribute beside it")));
        }
        let below = || levels.checked_sub(1).ok_or_else(|| bad_filter(path, BadFilter::Levels));
        let NodeFields { all, any, not, attribute, topic, .. } = &fields;
        match (all, any, not, attribute, topic) {
            (Some(parts), None, None, None, None) => {
                Ok(Node::All(self.parts(parts, &format!("{path}.all"), below()?)?))
            }
            (None, Some(parts), None, None, None) => {
                Ok(Node::Any(self.parts(parts, &format!("{path}.any"), below()?)?))
            }
            (None, None, Some(part), None, None) => {
                Ok(Node::Not(Box::new(self.node(part, &format!("{path}.not"), below()?)?)))
            }
            (None, None, None, Some(name), None) => {
                let tested = self.tested(name, path)?;
                let test = test(&tested, &fields, path)?;
                let leaf = Leaf::new(tested.column(), tested.order(), test);
                self.leaf(leaf, path)
            }
            (None, None, None, None, Some(topic)) => {
                let topic: Topic =
                    topic.parse().map_err(|bad| illegal(format!("{path}.topic {bad}")))?;
                let test = Test::In(vec![topic.as_str().into()]);
                self.leaf(Leaf::new(Column::Topic, None, test), path)
            }
            _ => Err(illegal(format!(
                "{path} must have exactly one of all, any, not, attribute and topic"
            ))),
        }
    }

    fn parts(
        &mut self,
        parts: &[&RawValue],
        path: &str,
        levels: usize,
    ) -> Result<Vec<Node>, Rejection> {
        if parts.is_empty() {
            return Err(empty(path));
        }
        // Each part has a test at least.
        if parts.len() > MAX_LEAVES {
            return Err(bad_filter(PATH, BadFilter::Leaves));
        }
        let parts = parts.iter().enumerate();
        parts.map(|(i, part)| self.node(part, &format!("{path}[{i}]"), levels)).collect()
    }

    fn leaf(&mut self, leaf: Leaf, path: &str) -> Result<Node, Rejection> {
        let position = self.leaves.len();
        if position >= MAX_LEAVES {
            return Err(bad_filter(path, BadFilter::Leaves));
        }
        self.leaves.push(leaf);
        Ok(Node::Leaf(position))
    }

    /// Finds the attribute with this name.
    fn tested(&self, name: &str, path: &str) -> Result<Tested<'_>, Rejection> {
        if let Some(attribute) = Attribute::ALL.into_iter().find(|built_in| built_in.name() == name)
        {
            return Ok(Tested::BuiltIn(attribute));
        }
        if let Some(declared) = self.declared.find(name) {
            return Ok(Tested::Declared(declared));
        }
        let declared = self.declared.iter().map(|declared| declared.name.as_str());
        let mut known: Vec<&str> = declared.collect();
        known.extend(Attribute::ALL.map(Attribute::name));
        let near = near(name, known.into_iter()).map(|near| format!("; the nearest one is {near}"));
        let (name, near) = (shown(name), near.unwrap_or_default());
        Err(illegal(format!("{path}.attribute: this app declares no attribute {name}{near}")))
    }
}

/// The attribute that a leaf tests.
enum Tested<'d> {
    BuiltIn(Attribute),
    Declared(&'d Declaration),
}

impl Tested<'_> {
    const fn column(&self) -> Column {
        match self {
            Self::BuiltIn(attribute) => Column::BuiltIn(*attribute),
            Self::Declared(declared) => Column::Custom(declared.id),
        }
    }

    const fn order(&self) -> Option<Order> {
        match self {
            Self::BuiltIn(attribute) => Leaf::order_of(*attribute),
            Self::Declared(declared) => declared.value_type.order(),
        }
    }

    /// Reads a value that is compared with others for equality.
    fn value(&self, raw: &RawValue, path: &str) -> Result<Box<str>, Rejection> {
        match self {
            Self::BuiltIn(attribute) => {
                let text = built_in_text(*attribute, raw, path)?;
                let value = attribute.normalise_wanted(&text);
                value.map_err(|bad| illegal(format!("{path} {bad}")))
            }
            Self::Declared(declared) => {
                // What is no valid value of JSON, such as 1e999, is none of the type either.
                let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
                let value = declared.value_type.normalise(&value);
                value.map(|value| (*value).into()).map_err(|bad| illegal(format!("{path} {bad}")))
            }
        }
    }

    /// Reads an end of a range.
    fn limit(&self, raw: &RawValue, path: &str) -> Result<Box<str>, Rejection> {
        let value = self.value(raw, path)?;
        if self.order() == Some(Order::Version) && !is_version(&value) {
            return Err(illegal(format!("{path} must be a version, like 2.10.0 or 3.0-rc1")));
        }
        Ok(value)
    }
}

/// Reads the text of a built-in attribute. An API level may be a number.
fn built_in_text<'a>(
    attribute: Attribute,
    raw: &'a RawValue,
    path: &str,
) -> Result<Text<'a>, Rejection> {
    let json = raw.get();
    if attribute == Attribute::OsVersion && json.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(json.into());
    }
    read_value(json, path)
}

fn test(tested: &Tested<'_>, fields: &NodeFields<'_>, path: &str) -> Result<Test, Rejection> {
    let NodeFields { one_of, gt, gte, lt, lte, .. } = fields;
    let ends = [("gt", *gt), ("gte", *gte), ("lt", *lt), ("lte", *lte)];
    let first_end = ends.iter().find(|(_, value)| value.is_some());
    match (one_of, first_end) {
        (Some(values), None) => {
            let path = format!("{path}.in");
            if values.is_empty() {
                return Err(empty(&path));
            }
            let values = values.iter().enumerate();
            let values = values.map(|(i, value)| tested.value(value, &format!("{path}[{i}]")));
            Ok(Test::In(values.collect::<Result<_, _>>()?))
        }
        (None, Some((name, _))) => {
            if tested.order().is_none() {
                return Err(illegal(format!(
                    "{path}.{name}: the values of this attribute have no order, use in"
                )));
            }
            Ok(Test::Range {
                from: end(tested, [("gt", *gt), ("gte", *gte)], path)?,
                to: end(tested, [("lt", *lt), ("lte", *lte)], path)?,
            })
        }
        (None, None) => Err(illegal(format!("{path} must have in, or one of gt, gte, lt and lte"))),
        (Some(_), Some((name, _))) => {
            Err(illegal(format!("{path} must not have both in and {name}")))
        }
    }
}

/// Reads one end of a range; the second form of it includes the value.
fn end(
    tested: &Tested<'_>,
    [(open, without), (closed, with)]: [(&str, Option<&RawValue>); 2],
    path: &str,
) -> Result<Option<Limit>, Rejection> {
    let (name, raw, inclusive) = match (without, with) {
        (None, None) => return Ok(None),
        (Some(raw), None) => (open, raw, false),
        (None, Some(raw)) => (closed, raw, true),
        (Some(_), Some(_)) => {
            return Err(illegal(format!("{path} must not have both {open} and {closed}")));
        }
    };
    let value = tested.limit(raw, &format!("{path}.{name}"))?;
    Ok(Some(Limit { value: value.into(), inclusive }))
}

fn empty(path: &str) -> Rejection {
    illegal(format!("{path} must not be empty: it could be read as everything or as nothing"))
}

fn bad_filter(path: &str, bad: BadFilter) -> Rejection {
    illegal(format!("{path} {bad}"))
}
