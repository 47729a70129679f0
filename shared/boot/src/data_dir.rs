//! The data directory of the embedded stores.

use std::{fs::DirBuilder, path::Path};

use anyhow::Context as _;

/// Makes the data directory, readable for its owner only, because it holds devices' tokens.
///
/// # Errors
/// If it cannot be made.
pub fn make(dir: &Path) -> anyhow::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).with_context(|| format!("cannot make the data directory {}", dir.display()))
}
