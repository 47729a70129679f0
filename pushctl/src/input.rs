//! The input of a command: a file, or standard input for `-`.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use anyhow::Context as _;
use push_boot::terminal;
use push_operator::input::NotedLine;

use crate::output::Output;

/// Opens the input, and returns its size in bytes if that is known.
///
/// # Errors
/// If there is no such file, or it cannot be read.
pub(crate) fn open(file: &Path) -> anyhow::Result<(Box<dyn Read + Send>, Option<u64>)> {
    if file == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let size = opened.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len());
    Ok((Box::new(opened), size))
}

/// Prints the `reported` lines to standard error. If `count` is larger, `what` names the others.
pub(crate) fn print_noted(reported: &[NotedLine], count: u64, what: &str, out: Output) {
    for noted in reported {
        let reason = terminal::line(&noted.reason);
        out.note(format_args!("line {}: {reason}", noted.line));
    }
    let unreported = count - reported.len() as u64;
    if unreported > 0 {
        out.note(format_args!("… and {unreported} more {what}"));
    }
}
