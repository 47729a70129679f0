//! The optional file of settings, `--config FILE` or `PUSH_CONFIG`: TOML, one line for each setting,
//! under the name of its flag (`queue-url = "amqp://…"`).
//!
//! A flag takes precedence over the environment, the environment over the file, and the file over
//! the built-in default. So the values of the file become the defaults of their flags before clap
//! reads the command line: in clap, nothing else ranks below the environment. Values put in front
//! of the arguments would count as typed and take precedence over the environment. Variables set in
//! the process would be inherited by its child processes. What clap says about the source of a
//! value stays true as well: a value that is neither a flag nor a variable is a default.
//!
//! A file is checked as a whole: every key that is no setting of the program is named, with its line
//! and the nearest known key. An error about the file never repeats a value, and repeats a key only
//! if it does not look like a password. A file with a password that other users can read causes
//! a warning.
//!
//! A setting with a file of its own (`queue-url-file`) replaces the value, and vice versa:
//! if a flag or a variable gives one of the two, the file's lines for both are left out.

mod entries;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use clap::{Arg, Command};
use push_model::text::str_without_mark;

use self::entries::Entry;
use super::older_words;
use crate::values::{may_hold_secret, nearest};

/// The flag that names the file.
const FLAG: &str = "config";
/// The variable that names the file.
const VARIABLE: &str = "PUSH_CONFIG";
/// The largest file, in bytes.
const MAX_FILE: u64 = 256 * 1024;
/// The suffix of a setting that names a file with the value of another setting.
const OF_FILE: &str = "-file";
/// The most wrong lines that an error names.
const MAX_WRONG_LINES: usize = 20;

/// The settings given outside the file: the arguments of the process and its environment.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) arguments: &'a [OsString],
    pub(crate) variable: &'a dyn Fn(&str) -> Option<OsString>,
}

/// A setting of a program, as its command line declares it.
struct Setting {
    variable: String,
    /// True if it may hold a password: then there is a second setting that names a file with it.
    is_secret: bool,
}

/// Adds the flag for the file to a command line.
pub(crate) fn with_flag(command: Command) -> Command {
    let flag = Arg::new(FLAG).long(FLAG).env(VARIABLE).value_name("FILE").global(true);
    let flag = flag.help_heading("Listeners and stop");
    // The short help of a tool is about one of its commands.
    let flag = flag.hide_short_help(command.has_subcommands());
    command.arg(flag.help(
        "Read settings from this TOML file: the name of a flag, =, its value. Flags and environment \
         variables take precedence",
    ))
}

/// Makes the values of the file the defaults of the command line, if a file is given. Returns the
/// command line and the warnings about the file.
///
/// # Errors
/// Says what is wrong with the file.
pub(crate) fn apply(command: Command, given: Given<'_>) -> Result<(Command, Vec<String>), String> {
    let Some(path) = given.path() else { return Ok((command, Vec::new())) };
    // A text given by mistake in place of a path may hold a password.
    let shown = Some(path.display().to_string()).filter(|path| !may_hold_secret(path));
    let shown = shown.map_or_else(String::new, |path| format!(" {path}"));
    let of_file = |problem: String| format!("--config{shown}: {problem}");
    let text = read(&path).map_err(|error| of_file(format!("cannot be read: {error}")))?;
    let settings = settings(&command);
    let entries = entries::read(&text).map_err(of_file)?;
    let unknown: Vec<String> = entries
        .iter()
        .filter(|(name, _)| !settings.contains_key(*name))
        .map(|(name, entry)| unknown(name, entry, &settings, command.get_name()))
        .take(MAX_WRONG_LINES)
        .collect();
    if !unknown.is_empty() {
        return Err(of_file(unknown.join("\n  ")));
    }
    let mut warnings = Vec::new();
    let secret = entries.iter().find(|(name, entry)| {
        settings.get(*name).is_some_and(|setting| setting.is_secret) && entry.holds_secret()
    });
    if let Some((name, _)) = secret
        && others_can_read(&path)
    {
        warnings.push(of_file(format!(
            "{name} holds a password and other users can read the file: chmod 600 {}, or put the \
             password into a file of its own and name it with {name}{OF_FILE}",
            path.display()
        )));
    }
    let values: BTreeMap<String, &'static str> = entries
        .into_iter()
        .filter(|(name, _)| !given.replaces(name, &settings))
        // The values of a command line live as long as the process.
        .map(|(name, entry)| (name, &*entry.value.leak()))
        .collect();
    Ok((with_defaults(command, &values), warnings))
}

impl Given<'_> {
    /// Returns the path of the file, if one is named.
    fn path(&self) -> Option<PathBuf> {
        let flag = self.flag(FLAG);
        flag.or_else(|| self.variable(VARIABLE)).map(PathBuf::from)
    }

    /// Returns the value of a variable. An empty one counts as unset.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// Returns the value of a flag; empty if the flag is the last argument.
    pub(crate) fn flag(&self, name: &str) -> Option<OsString> {
        let mut arguments = self.arguments.iter().skip(1).take_while(|argument| *argument != "--");
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.to_str().and_then(|text| text.strip_prefix("--")) else {
                continue;
            };
            match flag.split_once('=') {
                Some((flag, value)) if flag == name => return Some(value.into()),
                None if flag == name => {
                    return Some(arguments.next().cloned().unwrap_or_default());
                }
                _ => {}
            }
        }
        None
    }

    /// Returns true if a flag or a variable gives the other form of a setting, which replaces the
    /// file's line for this form: `queue-url` for `queue-url-file`, or vice versa.
    fn replaces(&self, name: &str, settings: &BTreeMap<String, Setting>) -> bool {
        let other = match name.strip_suffix(OF_FILE) {
            Some(value) => value.to_owned(),
            None => format!("{name}{OF_FILE}"),
        };
        settings.get(&other).is_some_and(|setting| {
            self.flag(&other).is_some() || self.variable(&setting.variable).is_some()
        })
    }
}

/// Returns the settings of a command and of its subcommands, by the names of their flags. A flag
/// without an environment variable, such as `--json`, is a choice of one call and no setting.
fn settings(command: &Command) -> BTreeMap<String, Setting> {
    let mut all = BTreeMap::new();
    collect(command, &mut all);
    all.remove(FLAG);
    let files: Vec<String> =
        all.keys().filter_map(|name| name.strip_suffix(OF_FILE)).map(str::to_owned).collect();
    for name in files {
        if let Some(setting) = all.get_mut(&name) {
            setting.is_secret = true;
        }
    }
    all
}

fn collect(command: &Command, all: &mut BTreeMap<String, Setting>) {
    for argument in command.get_arguments() {
        if let (Some(flag), Some(variable)) = (argument.get_long(), argument.get_env()) {
            let variable = variable.to_string_lossy().into_owned();
            all.insert(flag.to_owned(), Setting { variable, is_secret: false });
        }
    }
    command.get_subcommands().for_each(|command| collect(command, all));
}

fn unknown(
    name: &str,
    entry: &Entry,
    settings: &BTreeMap<String, Setting>,
    program: &str,
) -> String {
    let nearest =
        match (older_words::new_word(name), nearest(name, settings.keys().map(|key| &**key))) {
            (Some(new), _) => format!("; it is now {new}"),
            (None, Some(known)) => format!("; the nearest one is {known}"),
            (None, None) => String::new(),
        };
    format!("line {}: {} is no setting of {program}{nearest}", entry.line, shown(name))
}

/// Returns a key as an error names it. By mistake, a password may stand in place of a key.
fn shown(key: &str) -> String {
    if may_hold_secret(key) { "a key".to_owned() } else { format!("{key:?}") }
}

/// Makes the values of a file the defaults of their flags. The help does not show these values.
fn with_defaults(command: Command, values: &BTreeMap<String, &'static str>) -> Command {
    let command = command.mut_args(|argument| {
        let value = argument.get_long().filter(|_| argument.get_env().is_some());
        match value.and_then(|flag| values.get(flag)) {
            Some(value) => argument.default_value(*value).hide_default_value(true),
            None => argument,
        }
    });
    command.mut_subcommands(|command| with_defaults(command, values))
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // Opening a named pipe would wait until another program writes into it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // One byte more than the limit shows that there is more.
    let read = File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it is larger than {} KiB", MAX_FILE / 1024)));
    }
    Ok(str_without_mark(&text).to_owned())
}

#[cfg(unix)]
fn others_can_read(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    std::fs::metadata(path).is_ok_and(|of| of.mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn others_can_read(_path: &Path) -> bool {
    false
}
