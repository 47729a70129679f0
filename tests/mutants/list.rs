//! The records of planted faults, as `faults/*.toml` contain them.

use std::{collections::BTreeSet, fmt, path::Path};

use serde::Deserialize;

use crate::Failure;

/// The placeholder in a replacement for "this fault is chosen".
pub(crate) const PLANTED: &str = "PLANTED";

/// A planted fault.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// Its name: small letters, digits and hyphens.
    pub(crate) name: String,
    /// The breakage, in a sentence.
    pub(crate) says: String,
    /// The test that must catch it.
    pub(crate) caught_by: Test,
    /// The edits of the source that plant it.
    pub(crate) edit: Vec<Edit>,
}

/// One replacement in one file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// The path from the root of the repository.
    pub(crate) file: String,
    /// The text that is replaced. It must occur exactly once in the file.
    pub(crate) find: String,
    /// The text that replaces it. `PLANTED` in it is true if the fault is chosen; if not, the
    /// replacement must behave as the original text.
    pub(crate) replace: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    fault: Vec<Fault>,
}

/// A test that must fail, written as `unit PACKAGE FILTER`, `simulation exhaustive`, `simulation
/// random` or `suite NAME FILTER`. FILTER is a part of the names of the tests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Test {
    /// Unit tests of a package.
    Unit { package: String, filter: String },
    /// The simulation: every schedule of small worlds.
    Exhaustive,
    /// The simulation: random schedules.
    Random,
    /// Tests of a suite, against real servers.
    Suite { name: String, filter: String },
}

impl TryFrom<String> for Test {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match *text.split_whitespace().collect::<Vec<_>>() {
            ["unit", package, filter] => {
                Ok(Self::Unit { package: package.to_owned(), filter: filter.to_owned() })
            }
            ["simulation", "exhaustive"] => Ok(Self::Exhaustive),
            ["simulation", "random"] => Ok(Self::Random),
            ["suite", name, filter] => {
                Ok(Self::Suite { name: name.to_owned(), filter: filter.to_owned() })
            }
            _ => Err(format!("no level of the tests is called {text:?}")),
        }
    }
}

impl Test {
    /// The level of the test, as the output names it.
    pub(crate) fn level(&self) -> &'static str {
        match self {
            Self::Unit { .. } => "unit test",
            Self::Exhaustive | Self::Random => "simulation",
            Self::Suite { .. } => "suite",
        }
    }

    /// Returns true if it runs against real servers.
    pub(crate) fn needs_servers(&self) -> bool {
        matches!(self, Self::Suite { .. })
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit { package, filter } => write!(f, "unit test {package} {filter}"),
            Self::Exhaustive => f.write_str("simulation, every schedule of small worlds"),
            Self::Random => f.write_str("simulation, random schedules"),
            Self::Suite { name, filter } => write!(f, "suite {name} {filter}"),
        }
    }
}

/// Reads all records of a folder, and checks them.
pub(crate) fn read(folder: &Path) -> Result<Vec<Fault>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| Failure::file(folder, error))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut faults = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| Failure::file(&path, error))?;
        let wrong = |error| Failure::List(format!("{}: {error}", path.display()));
        let file: File = toml::from_str(&text).map_err(wrong)?;
        faults.extend(file.fault);
    }
    let mut names = BTreeSet::new();
    match faults.iter().find_map(|fault| wrong_with(fault, &mut names)) {
        Some(wrong) => Err(Failure::List(wrong)),
        None => Ok(faults),
    }
}

fn wrong_with<'a>(fault: &'a Fault, names: &mut BTreeSet<&'a str>) -> Option<String> {
    let Fault { name, edit, .. } = fault;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Some(format!("{name:?} is no name"));
    }
    if !names.insert(name) {
        return Some(format!("two faults are called {name}"));
    }
    if edit.is_empty() || edit.iter().any(|edit| !edit.replace.contains(PLANTED)) {
        return Some(format!("{name} is not inert: each replacement must contain {PLANTED}"));
    }
    None
}
