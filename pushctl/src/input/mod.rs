//! The input of a command: a file, or standard input for `-`.
//!
//! - `line_reader`: reads it line by line in bounded memory
//! - `noted_lines`: the lines that the command did not accept, or accepted with a warning

mod line_reader;
mod noted_lines;

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use anyhow::Context as _;

pub(crate) use self::{
    line_reader::{Line, LineReader},
    noted_lines::NotedLines,
};

/// Opens the input, and gives its size in bytes if that is known.
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
