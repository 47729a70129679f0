//! Reads the lines of a file of settings.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::{MAX_WRONG_LINES, shown};

/// One setting of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The value, in the form of a flag.
    pub(super) value: String,
    /// The number of its line in the file, from 1.
    pub(super) line: usize,
}

impl Entry {
    /// Returns true if the value of a secret setting holds a password: a URL does only with a user.
    pub(super) fn holds_secret(&self) -> bool {
        !self.value.contains("://") || self.value.contains('@')
    }
}

/// Reads the settings of a file, by their names.
///
/// # Errors
/// Says what is wrong with the file, without repeating its values.
pub(super) fn read(text: &str) -> Result<BTreeMap<String, Entry>, String> {
    let lines = Lines::of(text);
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(String::new(), |at| format!("line {}: ", lines.at(at.start)));
        format!("{at}{}", error.message())
    })?;
    let mut entries = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, value) in table.into_inner() {
        let line = lines.at(name.span().start);
        let name = name.into_inner().into_owned();
        match written(value.get_ref()) {
            Some(value) => {
                entries.insert(name, Entry { value, line });
            }
            None if wrong.len() < MAX_WRONG_LINES => wrong.push(format!(
                "line {line}: {} must be a text in quotation marks, a whole number, true or false",
                shown(&name)
            )),
            None => {}
        }
    }
    if wrong.is_empty() { Ok(entries) } else { Err(wrong.join("\n  ")) }
}

/// Returns the value in the form of a flag; none for a kind of value that no setting has.
fn written(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        // The word of every setting that is one or the other.
        DeValue::Boolean(true) => Some("on".to_owned()),
        DeValue::Boolean(false) => Some("off".to_owned()),
        _ => None,
    }
}

/// The positions of the line ends of a text. A file may have as many keys as lines, and counting
/// the lines from the beginning for each key would take seconds.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// Returns the number of the line that holds a byte, from 1.
    fn at(&self, byte: usize) -> usize {
        1 + self.0.partition_point(|end| *end < byte)
    }
}
