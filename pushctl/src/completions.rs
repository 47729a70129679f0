//! `pushctl completions`: prints a script for a shell that completes the commands and flags of a
//! program.

use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use crate::{output::Output, programs::Program};

/// Flags of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
    /// The program whose commands and flags are completed
    #[arg(long, value_name = "PROGRAM", default_value = "pushctl")]
    program: Program,
}

/// Prints the script.
///
/// # Errors
/// If standard output is closed.
pub fn run(args: &CompletionsArgs, pushctl: &Command, out: Output) -> anyhow::Result<()> {
    let mut command = args.program.command(pushctl);
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, &name, &mut script);
    let script = String::from_utf8(script)?;
    let shell = args.shell.to_string();
    out.result(&script, &json!({ "program": name, "shell": shell, "script": script }))
}
