//! Secrets that come from a file.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use push_model::{
    secret::{BadSecret, Secret},
    text::str_without_mark,
};

/// Reads a secret that an app has, from a file without the line end and the byte order mark that editors
/// add.
///
/// # Errors
/// If the file cannot be read or holds no secret.
pub fn read_secret(file: &Path) -> anyhow::Result<Secret> {
    read(file, Secret::new)
}

/// Reads a new secret from a file, or makes one if there is none.
///
/// # Errors
/// If the file cannot be read, or holds no secret or one that could be guessed.
pub(super) fn read_or_generate(file: Option<PathBuf>) -> anyhow::Result<Secret> {
    file.map_or_else(|| Ok(Secret::generate()), |file| read(&file, Secret::chosen))
}

fn read(file: &Path, check: fn(&str) -> Result<Secret, BadSecret>) -> anyhow::Result<Secret> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the secret file {}", file.display()))?;
    check(str_without_mark(&text).trim_end_matches(['\r', '\n']))
        .with_context(|| format!("the secret in {} cannot be used", file.display()))
}
