//! `pushctl man`: writes the manual, a page for each program and each command, from their help
//! texts.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, Command, builder::Resettable};
use clap_mangen::Man;
use push_boot::build_info;

use super::programs::Program;
use crate::output::Output;

/// The title in the header of each page.
const MANUAL: &str = "Push Message Service";

/// Flags of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder, which is made if it is not there
    dir: PathBuf,
}

/// Writes the pages, and prints their names.
///
/// # Errors
/// If a page cannot be written.
pub fn run(args: &ManArgs, pushctl: &Command, out: Output) -> anyhow::Result<()> {
    let pages = write_all(&args.dir, pushctl)
        .with_context(|| format!("cannot write the manual to {}", args.dir.display()))?;
    let names: Vec<String> = pages.iter().map(|page| page.display().to_string()).collect();
    out.result(names.join("\n"), &names)
}

fn write_all(dir: &Path, pushctl: &Command) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(dir)?;
    let mut pages = Vec::new();
    for program in Program::ALL {
        // The long form has several lines, which a page would join.
        let mut command = program.command(pushctl).long_version(Resettable::Reset);
        command = command.disable_help_subcommand(true);
        // Gives each command the name of its page, `pushctl-app-create`.
        command.build();
        write(&command, dir, &mut pages)?;
    }
    Ok(pages)
}

/// Writes the pages of a command and of its subcommands.
fn write(command: &Command, dir: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    let man = Man::new(command.clone())
        .manual(MANUAL)
        .source(format!("push {}", build_info::NUMBER))
        .date(build_info::DATE);
    pages.push(man.generate_to(dir)?);
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write(command, dir, pages)?;
    }
    Ok(())
}
