//! Writing the file: beside its place, durably, and only then under its name. The caller holds the
//! lock of the folder.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

use super::{KeyFileError, KeyWords};

/// The access to a new file: only the owner reads and writes.
const MODE: u32 = 0o600;

/// The part of the access to a file that is kept when it is replaced: a group may read it, such as
/// that of a service whose file root owns.
const KEPT_MODE: u32 = 0o640;

/// The end of the name of an unfinished file.
const UNFINISHED: &str = ".new";

/// Makes the file, unless there is one.
pub(super) fn create(path: &Path, content: &[u8], words: KeyWords) -> Result<(), KeyFileError> {
    let written = with_temporary(path, content, |_, temporary| {
        // A link, unlike a rename, fails if there is a file of that name.
        fs::hard_link(temporary, path)?;
        fs::remove_file(temporary)
    });
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists(words, path.to_owned()),
        _ => KeyFileError::Write(words, path.to_owned(), error),
    })
}

/// Puts another content in the place of the file's, for the same user and group.
pub(super) fn replace(path: &Path, content: &[u8], words: KeyWords) -> Result<(), KeyFileError> {
    let failed = |error| KeyFileError::Write(words, path.to_owned(), error);
    let replaced = fs::metadata(path).map_err(failed)?;
    let mut given = true;
    let written = with_temporary(path, content, |file, temporary| {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (replaced.uid(), replaced.gid()) {
            given = false;
            fchown(file, Some(replaced.uid()), Some(replaced.gid()))?;
            given = true;
        }
        file.set_permissions(fs::Permissions::from_mode(replaced.mode() & KEPT_MODE))?;
        fs::rename(temporary, path)
    });
    written.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied if !given => {
            KeyFileError::Owner { words, path: path.to_owned(), owner: replaced.uid() }
        }
        _ => failed(error),
    })
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
    publish: impl FnOnce(&File, &Path) -> io::Result<()>,
) -> io::Result<()> {
    remove_unfinished(path)?;
    let temporary = temporary(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&temporary)?;
    let published = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| publish(&file, &temporary))
        .and_then(|()| File::open(folder(path))?.sync_all());
    if published.is_err() {
        // It may not be there any more; if it stays, nothing reads it.
        let _ = fs::remove_file(&temporary);
    }
    published
}

/// Removes what writers left that were killed: a private key is in it.
fn remove_unfinished(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    for entry in fs::read_dir(folder(path))? {
        let entry = entry?;
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let random = rest.and_then(|rest| rest.strip_prefix(b"."));
        let random = random.and_then(|rest| rest.strip_suffix(UNFINISHED.as_bytes()));
        if random.is_some_and(|it| it.len() == 16 && it.iter().all(u8::is_ascii_hexdigit)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A name beside the file that no other writer uses.
fn temporary(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut random = [0; 8];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random)
        .map_err(|_| io::Error::other("no random numbers"))?;
    let mut temporary = name.to_owned();
    temporary.push(format!(".{:016x}{UNFINISHED}", u64::from_ne_bytes(random)));
    Ok(path.with_file_name(temporary))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
