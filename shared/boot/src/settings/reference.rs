//! The reference of all settings, made from the command lines that the programs read, so that it
//! cannot differ from them.
//!
//! A setting of several programs is listed once, under the heading that it has in their help, with
//! the programs that have it. Where their defaults differ, each is named.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::{Arg, Command};
use serde::Serialize;

use crate::tune::Tunable;

/// A program, under the name that an operator calls it by, and its command line. A subcommand has
/// the flags of the commands above it as well.
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
    /// `--drain-deadline`.
    pub flag: String,
    /// `PUSH_DRAIN_DEADLINE`.
    pub variable: String,
    /// The kind of its value: `TIME`, `SIZE`, `N`, …
    pub value: String,
    /// The help text.
    pub text: String,
    /// The heading above it in the help.
    pub heading: String,
    /// The programs that have it, each with the default there.
    pub programs: Vec<(&'static str, Option<String>)>,
}

/// Returns all settings, in the order in which the programs list them. A flag without an
/// environment variable is a choice of one call, and a hidden flag is for tests and experts; both
/// are left out.
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
                    heading: argument.get_help_heading().unwrap_or("Other settings").to_owned(),
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
    names.first().map(ToString::to_string).unwrap_or_default()
}

fn default(argument: &Arg) -> Option<String> {
    let value = argument.get_default_values().first()?;
    Some(value.to_string_lossy().into_owned())
}

/// Returns the sections of the page, one for each heading, with its settings as a table.
pub fn sections(settings: &[Setting]) -> String {
    let programs = settings.iter().map(|setting| setting.programs.len()).max().unwrap_or_default();
    let mut groups: Vec<(&str, Vec<&Setting>)> = Vec::new();
    for setting in settings {
        match groups.iter_mut().find(|(heading, _)| *heading == setting.heading) {
            Some((_, group)) => group.push(setting),
            None => groups.push((&setting.heading, vec![setting])),
        }
    }
    let mut page = String::new();
    for (heading, group) in groups {
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## {heading}\n\n");
        page.push_str(
            "| flag | variable | value | default | of | what it does |\n|---|---|---|---|---|---|\n",
        );
        for setting in group {
            let names: Vec<String> =
                setting.programs.iter().map(|(name, _)| format!("`{name}`")).collect();
            let names = if names.len() == programs { "all".to_owned() } else { names.join(", ") };
            let _ = writeln!(
                page,
                "| `{}` | `{}` | {} | {} | {} | {} |",
                setting.flag,
                setting.variable,
                cell(&setting.value),
                cell(&setting.default()),
                names,
                cell(&setting.text),
            );
        }
    }
    page
}

/// Returns the table of the constants that `--tune` replaces, in the order of their keys.
pub fn tunables(mut known: Vec<Tunable>) -> String {
    known.sort();
    known.dedup();
    let mut table = "| key | default | from, to |\n|---|---|---|\n".to_owned();
    for Tunable { key, default, bounds } in known {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| `{key}` | `{default}` | {bounds} |");
    }
    table
}

impl Setting {
    /// Returns its default, or that of each program where they differ.
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

/// Returns a text as a cell of a table: on one line, with the column separator escaped.
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
        #[arg(
            long,
            help_heading = "Listeners",
            env = "PUSH_LISTEN",
            value_name = "ADDRESS",
            default_value = "127.0.0.1:1"
        )]
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
        #[arg(long, env = "PUSH_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:2")]
        listen: String,
    }

    #[test]
    fn a_setting_stands_once_with_its_programs_and_with_the_defaults_that_differ() {
        let settings = settings(&[
            Program { name: "one", commands: vec![Both::command()] },
            Program { name: "two", commands: vec![Other::command()] },
        ]);
        let page = sections(&settings);
        let head = "| flag | variable | value | default | of | what it does |\n|---|---|---|---|---|---|\n";
        let expected = format!(
            "\n## Other settings\n\n{head}\
             | `--count` | `PUSH_COUNT` | N\\|none | `4` | `one` | How many at once: a number |\n\
             \n## Listeners\n\n{head}\
             | `--listen` | `PUSH_LISTEN` | ADDRESS | `127.0.0.1:1` (one), `127.0.0.1:2` (two) | \
             all | Where it listens |\n"
        );
        assert_eq!(page, expected);
    }
}
