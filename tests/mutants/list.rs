//! The records of planted faults, as `faults/*.toml` has them.

use std::{collections::BTreeSet, fmt, path::Path};

use serde::Deserialize;

use crate::Failure;

/// What stands in a replacement for "this fault is chosen".
pub(crate) const PLANTED: &str = "PLANTED";

/// A planted fault.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// Names it: small letters, digits and hyphens.
    pub(crate) name: String,
    /// What is broken, in a sentence.
    pub(crate) says: String,
    /// What must catch it.
    pub(crate) caught_by: Test,
    /// What it changes.
    pub(crate) edit: Vec<Edit>,
}

/// One text of one file that is replaced.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// From the root of the repository.
    pub(crate) file: String,
    /// The text, which the file has exactly once.
    pub(crate) find: String,
    /// What takes its place. `PLANTED` in it is true if the fault is chosen; otherwise it must do
    /// what the text did.
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
    /// Tests beside the code of a package.
    Unit { package: String, filter: String },
    /// Every schedule of small worlds.
    Exhaustive,
    /// Random schedules.
    Random,
    /// Tests against real servers.
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
    /// What kind of test it is.
    pub(crate) fn level(&self) -> &'static str {
        match self {
            Self::Unit { .. } => "unit test",
            Self::Exhaustive | Self::Random => "simulation",
            Self::Suite { .. } => "suite",
        }
    }

    /// Whether it runs against real servers.
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

/// Reads the records of a folder.
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
        return Some(format!("{name} is not inert: a replacement asks whether {PLANTED}"));
    }
    None
}
