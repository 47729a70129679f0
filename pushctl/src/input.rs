//! What a command reads: a file, or standard input for `-`.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use anyhow::Context as _;

/// Opens it, and says how many bytes it has if that is known.
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
