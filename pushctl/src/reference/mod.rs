//! `pushctl reference`: all settings of all programs, as the page `docs/configuration.md`.
//!
//! The page is made from the command lines that the programs read. A test compares it with the one in
//! the repository, so that a setting cannot be changed without it.

use clap::Command;
use push_boot::reference::{Program as Listed, sections, settings};

use crate::{output::Output, programs::Program};

/// The text before the tables.
const HEAD: &str = include_str!("head.md");

/// Prints the page, or with `--json` the settings.
///
/// # Errors
/// If standard output is closed.
pub fn run(pushctl: &Command, out: Output) -> anyhow::Result<()> {
    let settings = settings(&programs(pushctl));
    out.result(format!("{HEAD}{}", sections(&settings)), &settings)
}

fn programs(pushctl: &Command) -> Vec<Listed> {
    let tool = |name, command: &str| {
        let own = pushctl.find_subcommand(command).cloned();
        Listed { name, commands: std::iter::once(pushctl.clone()).chain(own).collect() }
    };
    let service =
        |name, program: Program| Listed { name, commands: vec![program.command(pushctl)] };
    vec![
        service("ingest", Program::Ingest),
        service("fanout-worker", Program::FanoutWorker),
        tool("pushctl standalone", "standalone"),
        tool("pushctl broker", "broker"),
    ]
}
