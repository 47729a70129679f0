//! `pushctl reference`: all settings of all programs, as the page `docs/configuration.md`.
//!
//! The page is made from the command lines that the programs read. A test compares it with the one in
//! the repository, so that a setting cannot be changed without it.

use push_boot::reference::{Program as Listed, sections, settings};

use crate::{output::Output, programs::Program};

/// What stands before the tables.
const HEAD: &str = include_str!("head.md");

/// Prints the page, or with `--json` the settings.
///
/// # Errors
/// If standard output is closed.
pub fn run(out: Output) -> anyhow::Result<()> {
    let settings = settings(&programs());
    out.result(format!("{HEAD}{}", sections(&settings)), &settings)
}

fn programs() -> Vec<Listed> {
    let tool = |name, command: &str| {
        let tool = Program::Pushctl.command();
        let own = tool.find_subcommand(command).cloned();
        Listed { name, commands: std::iter::once(tool.clone()).chain(own).collect() }
    };
    let service = |name, program: Program| Listed { name, commands: vec![program.command()] };
    vec![
        service("ingest", Program::Ingest),
        service("fanout-worker", Program::FanoutWorker),
        tool("pushctl standalone", "standalone"),
        tool("pushctl broker", "broker"),
    ]
}
