//! Writing the file: beside its place, durably, and only then under its name.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::KeyFileError;

/// Only the owner reads and writes.
const MODE: u32 = 0o600;

/// Makes the file, unless there is one.
pub(super) fn create(path: &Path, content: &[u8]) -> Result<(), KeyFileError> {
    let written = with_temporary(path, content, |temporary| {
        // A link, unlike a rename, fails if there is a file of that name.
        fs::hard_link(temporary, path)?;
        fs::remove_file(temporary)
    });
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists(path.to_owned()),
        _ => KeyFileError::Write(path.to_owned(), error),
    })
}

/// Puts another content in the place of the file's.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    with_temporary(path, content, |temporary| fs::rename(temporary, path))
}

/// Keeps other writers of this file away while the result exists.
pub(super) fn lock_folder(path: &Path) -> io::Result<File> {
    let folder = File::open(folder(path))?;
    folder.lock()?;
    Ok(folder)
}

fn with_temporary(
    path: &Path,
    content: &[u8],
    publish: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&temporary)?;
    let published = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| publish(&temporary))
        .and_then(|()| File::open(folder(path))?.sync_all());
    if published.is_err() {
        // It may not be there any more; if it stays, nothing reads it.
        let _ = fs::remove_file(&temporary);
    }
    published
}

/// A name beside the file that no other writer uses.
fn temporary(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut random = [0; 8];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random)
        .map_err(|_| io::Error::other("no random numbers"))?;
    let mut temporary = name.to_owned();
    temporary.push(format!(".{:016x}.new", u64::from_ne_bytes(random)));
    Ok(path.with_file_name(temporary))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
