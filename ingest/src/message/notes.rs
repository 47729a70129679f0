//! What the sender of a valid push should know: unknown fields, fields without effect, a notification without
//! text. Hardly any push has such a thing, and one without costs no allocation.

use std::collections::BTreeMap;

use push_boot::settings::nearest;
use push_model::text::Text;
use serde_json::value::RawValue;

use super::json::{KnownFields, illegal};
use crate::rejection::Rejection;

/// The most unknown fields of an object that are named.
const MAX_NAMED: usize = 5;
/// The longest name of a field that is repeated, in characters.
const MAX_NAME: usize = 40;

/// Texts for the sender of a push.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes(Option<Box<Noted>>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Noted {
    unknown: Vec<String>,
    without_effect: Vec<String>,
}

impl Notes {
    /// Notes the unknown fields of an object; `path` is its JSON path, empty for the whole body. `known` has the
    /// fields that it may have, if there are unknown ones.
    pub(super) fn unknown_fields(&mut self, known: KnownFields, json: &str, path: &str) {
        let Some(known) = known else { return };
        let fields: Result<BTreeMap<Text<'_>, &RawValue>, _> = serde_json::from_str(json);
        let fields = fields.unwrap_or_default();
        let unknown = fields.keys().filter(|name| !known.contains(&&***name));
        let all = &mut self.noted().unknown;
        let count = unknown.clone().count();
        for name in unknown.take(MAX_NAMED) {
            let near = near(name, known.iter().copied());
            let near = near.map(|near| format!("; the nearest one is {}", at(path, near)));
            let near = near.unwrap_or_default();
            all.push(format!("{} is an unknown field{near}", at(path, &shown(name))));
        }
        if count > MAX_NAMED {
            all.push(format!("{} more fields are unknown", count - MAX_NAMED));
        }
    }

    /// Notes that a field has no effect, and why.
    pub(super) fn without_effect(&mut self, field: &str, why: &str) {
        self.noted().without_effect.push(format!("{field} has no effect with {why}"));
    }

    /// Notes something else.
    pub(crate) fn note(&mut self, text: &str) {
        self.noted().without_effect.push(text.to_owned());
    }

    /// Refuses a push with unknown fields.
    ///
    /// # Errors
    /// If there are some; the text names them.
    pub(crate) fn refuse_unknown_fields(&self) -> Result<(), Rejection> {
        match &self.0 {
            Some(noted) if !noted.unknown.is_empty() => Err(illegal(noted.unknown.join(", and "))),
            _ => Ok(()),
        }
    }

    /// Returns all texts.
    pub(crate) fn into_texts(self) -> Vec<String> {
        let noted = self.0.map(|noted| *noted).unwrap_or_default();
        let Noted { mut unknown, without_effect } = noted;
        unknown.extend(without_effect);
        unknown
    }

    fn noted(&mut self) -> &mut Noted {
        self.0.get_or_insert_default()
    }
}

/// Returns the JSON path of a field.
fn at(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// Returns the known name that is most similar to a wrong one, if any is similar enough.
pub(crate) fn near<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // The time for it grows with the length of the name.
    Some(name).filter(|name| name.len() <= MAX_NAME).and_then(|name| nearest(name, known))
}

/// Returns the beginning of a name that a client chose, as it may be repeated to it.
pub(crate) fn shown(name: &str) -> String {
    let visible = |char: char| if char.is_control() { '?' } else { char };
    name.chars().take(MAX_NAME).map(visible).collect()
}
