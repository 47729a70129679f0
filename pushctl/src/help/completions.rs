//! `pushctl completions`: prints a script for a shell that completes the commands and flags of a
//! program.

use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use super::programs::Program;
use crate::output::Output;

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
    let mut script = String::from_utf8(script)?;
    if args.shell == Shell::Bash {
        script = script.lines().map(commands_first).collect();
    }
    let shell = args.shell.to_string();
    out.result(&script, &json!({ "program": name, "shell": shell, "script": script }))
}

/// Puts the commands before the flags in a line of the script for bash that lists the words of a command: bash
/// offers them in this order.
fn commands_first(line: &str) -> String {
    let words = line.trim_start().strip_prefix("opts=\"").and_then(|rest| rest.strip_suffix('"'));
    let Some(words) = words else { return format!("{line}\n") };
    let (flags, commands): (Vec<&str>, Vec<&str>) =
        words.split_whitespace().partition(|word| word.starts_with('-'));
    let indent = line.len() - line.trim_start().len();
    format!("{:indent$}opts=\"{}\"\n", "", [commands, flags].concat().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_before_flags_and_other_lines_stay() {
        let line = "            opts=\"-h --json create list --help\"";
        assert_eq!(commands_first(line), "            opts=\"create list -h --json --help\"\n");
        assert_eq!(commands_first("  return 0"), "  return 0\n");
    }
}
