//! The `--help` of each program and of each command of `pushctl`: the list of all commands and settings,
//! so that a test over all of them covers new ones.

use std::{collections::BTreeSet, process::Command};

use crate::service::built;

/// One program, or one command of `pushctl`.
#[derive(Debug, Clone)]
pub struct CommandHelp {
    /// The program.
    pub program: &'static str,
    /// The words of the command, none for the program itself.
    pub words: Vec<String>,
    /// Its output with `--help`.
    pub help: String,
}

/// All programs and commands.
pub fn commands() -> Vec<CommandHelp> {
    let mut all = Vec::new();
    for program in ["ingest", "fanout-worker", "pushctl"] {
        collect(program, &[], &mut all);
    }
    all
}

fn collect(program: &'static str, words: &[String], all: &mut Vec<CommandHelp>) {
    let output = Command::new(built(program)).args(words).arg("--help").output();
    let output = output.expect("the program");
    assert!(output.status.success(), "{program} {words:?} --help");
    let help = String::from_utf8(output.stdout).expect("text");
    let command = CommandHelp { program, words: words.to_vec(), help };
    let deeper = command.subcommands();
    all.push(command);
    for word in deeper {
        collect(program, &[words, &[word]].concat(), all);
    }
}

impl CommandHelp {
    /// `pushctl device import`.
    pub fn name(&self) -> String {
        [&[self.program.to_owned()], &self.words[..]].concat().join(" ")
    }

    /// The commands that the help lists.
    pub fn subcommands(&self) -> Vec<String> {
        let listed = self.help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let listed = listed.take_while(|line| line.starts_with("  "));
        let names = listed.filter(|line| !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next());
        names.filter(|name| *name != "help").map(str::to_owned).collect()
    }

    /// The environment variables that it reads.
    pub fn variables(&self) -> BTreeSet<String> {
        // Lines are wrapped, also before a name.
        let words: Vec<&str> = self.help.split_whitespace().collect();
        let names = words.windows(2).filter(|pair| pair.first() == Some(&"[env:"));
        let names = names.filter_map(|pair| pair.last()?.split(['=', ']']).next());
        names.map(str::to_owned).collect()
    }

    /// Arguments that satisfy its usage line: a word for each one that is required.
    pub fn arguments(&self) -> Vec<String> {
        let usage = self.help.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or("");
        let required = usage.split_whitespace().filter(|word| !word.starts_with('['));
        let required = required.skip(1 + self.words.len()).filter(|word| *word != "<COMMAND>");
        required.map(|word| if word.starts_with('<') { "x" } else { word }.to_owned()).collect()
    }
}
