//! The reference of all settings, made from the command lines that the programs read, so that it
//! cannot say anything else than they do.
//!
//! A setting of several programs stands once, in a section for just those programs. What they have
//! in common is compared by flag; where their defaults differ, each is named.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::{Arg, Command};
use serde::Serialize;

/// A program, under the name that an operator calls it by, and its command line. Flags of the
/// commands above it are among those of the command line.
#[derive(Debug)]
pub struct Program {
    /// `pushctl broker`.
    pub name: &'static str,
    /// Its command line, from the outermost command to its own.
    pub commands: Vec<Command>,
}

/// One setting of one or more programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// `--health-interval`.
    pub flag: String,
    /// `PUSH_HEALTH_INTERVAL`.
    pub variable: String,
    /// What its value is: `TIME`, `SIZE`, `N`, …
    pub value: String,
    /// What it is for.
    pub text: String,
    /// The programs that have it, each with the default there.
    pub programs: Vec<(&'static str, Option<String>)>,
}

/// All settings, in the order in which the programs list them. What has no environment variable is
/// no setting but a choice of one call, and what is hidden has no effect.
pub fn settings(programs: &[Program]) -> Vec<Setting> {
    let mut settings: Vec<Setting> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for program in programs {
        let arguments = program.commands.iter().flat_map(Command::get_arguments);
        for (argument, flag, variable) in arguments.filter_map(parts) {
            let place = *places.entry(flag.clone()).or_insert_with(|| {
                settings.push(Setting {
                    flag,
                    variable,
                    value: value(argument),
                    text: argument.get_help().map(ToString::to_string).unwrap_or_default(),
                    programs: Vec::new(),
                });
                settings.len() - 1
            });
            if let Some(setting) = settings.get_mut(place)
                && setting.programs.iter().all(|(name, _)| *name != program.name)
            {
                setting.programs.push((program.name, default(argument)));
            }
        }
    }
    settings
}

fn parts(argument: &Arg) -> Option<(&Arg, String, String)> {
    let flag = argument.get_long().filter(|_| !argument.is_hide_set())?;
    let variable = argument.get_env()?.to_string_lossy().into_owned();
    Some((argument, format!("--{flag}"), variable))
}

fn value(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let name = names.first().map(ToString::to_string).unwrap_or_default();
    // One word for one kind of value.
    if name == "ADDR" { "ADDRESS".to_owned() } else { name }
}

fn default(argument: &Arg) -> Option<String> {
    let value = argument.get_default_values().first()?;
    Some(value.to_string_lossy().into_owned())
}

/// The sections of the page: a heading, and the settings of just those programs as a table.
pub fn sections(settings: &[Setting]) -> String {
    let mut groups: Vec<(Vec<&str>, Vec<&Setting>)> = Vec::new();
    for setting in settings {
        let programs: Vec<&str> = setting.programs.iter().map(|(name, _)| *name).collect();
        match groups.iter_mut().find(|(names, _)| *names == programs) {
            Some((_, group)) => group.push(setting),
            None => groups.push((programs, vec![setting])),
        }
    }
    // What concerns the most programs first.
    groups.sort_by_key(|(programs, _)| std::cmp::Reverse(programs.len()));
    let mut page = String::new();
    for (programs, group) in groups {
        let names: Vec<String> = programs.iter().map(|name| format!("`{name}`")).collect();
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## {}\n\n", names.join(", "));
        page.push_str(
            "| flag | variable | value | default | what it is |\n|---|---|---|---|---|\n",
        );
        for setting in group {
            let _ = writeln!(
                page,
                "| `{}` | `{}` | {} | {} | {} |",
                setting.flag,
                setting.variable,
                cell(&setting.value),
                cell(&setting.default()),
                cell(&setting.text),
            );
        }
    }
    page
}

impl Setting {
    /// Its default, or that of each program where they differ.
    fn default(&self) -> String {
        let shown = |value: &Option<String>| value.as_ref().map(|value| format!("`{value}`"));
        let mut programs = self.programs.iter();
        let first = programs.next().and_then(|(_, value)| shown(value));
        if programs.all(|(_, value)| shown(value) == first) {
            return first.unwrap_or_else(|| "–".to_owned());
        }
        let of_each = self.programs.iter().map(|(name, value)| {
            let value = shown(value).unwrap_or_else(|| "–".to_owned());
            format!("{value} ({name})")
        });
        of_each.collect::<Vec<_>>().join(", ")
    }
}

/// A text as a cell of a table: in one line, and without what would end the cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Parser)]
    #[allow(dead_code, reason = "only the command line is looked at")]
    struct Both {
        /// How many at once: a
        /// number
        #[arg(long, env = "PUSH_COUNT", value_name = "N|none", default_value = "4")]
        count: String,
        /// Where it listens
        #[arg(long, env = "PUSH_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:1")]
        listen: String,
        /// Without effect
        #[arg(long, env = "PUSH_OLD", hide = true)]
        old: Option<String>,
        /// A choice of one call
        #[arg(long)]
        json: bool,
    }

    #[derive(Parser)]
    #[allow(dead_code, reason = "only the command line is looked at")]
    struct Other {
        /// Where it listens
        #[arg(long, env = "PUSH_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:2")]
        listen: String,
    }

    #[test]
    fn a_setting_stands_once_with_its_programs_and_with_the_defaults_that_differ() {
        let settings = settings(&[
            Program { name: "one", commands: vec![Both::command()] },
            Program { name: "two", commands: vec![Other::command()] },
        ]);
        let page = sections(&settings);
        let head = "| flag | variable | value | default | what it is |\n|---|---|---|---|---|\n";
        let expected = format!(
            "\n## `one`, `two`\n\n{head}\
             | `--listen` | `PUSH_LISTEN` | ADDRESS | `127.0.0.1:1` (one), `127.0.0.1:2` (two) | \
             Where it listens |\n\
             \n## `one`\n\n{head}\
             | `--count` | `PUSH_COUNT` | N\\|none | `4` | How many at once: a number |\n"
        );
        assert_eq!(page, expected);
    }
}
