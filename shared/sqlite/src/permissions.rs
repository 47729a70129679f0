//! The access to database files.
//!
//! The files hold hashes of secrets, tokens of devices and texts of messages, so they are made for
//! their owner only, whatever the umask. SQLite gives the files that it makes beside a database
//! (`-wal`, `-shm`) the permissions of the database itself, so making that one first is enough.
//!
//! A file with wider permissions is tightened when it is opened. A group that may *write* keeps its
//! access: no umask grants that by default, so an operator gave it to programs that share the file. A
//! group that may only read cannot use a database with a write-ahead log, and loses its access. Only
//! the owner of a file can change its permissions; for any other program [`exposure`] reports it.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Reading and writing for the owner.
const OWNER: u32 = 0o600;
/// Entering, reading and writing a directory for the owner.
const OWNER_DIRECTORY: u32 = 0o700;
const GROUP_WRITES: u32 = 0o020;
const GROUP: u32 = 0o070;
const OTHERS: u32 = 0o007;
const OTHERS_WRITE: u32 = 0o002;
/// In such a directory only the owner of a file can replace it, as in `/tmp`.
const STICKY: u32 = 0o1000;

/// The files beside a database: its write-ahead log, the index of that, and the turnstile.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", TURN_SUFFIX];
/// The end of the name of the turnstile's lock file, after that of the database.
pub(super) const TURN_SUFFIX: &str = "-turn";

/// Makes a directory, and those above it that are missing, for their owner only.
pub(super) fn make_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(OWNER_DIRECTORY).create(directory)
}

/// Makes a file for its owner only, if it is missing. A database that is there is never opened here:
/// closing it would drop SQLite's locks of this process.
pub(super) fn make_file(database: &Path) -> io::Result<()> {
    match for_owner().write(true).create_new(true).open(database) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Takes the access of other users to a database and its companions, where that is possible.
pub(super) fn tighten(database: &Path) {
    for file in files(database) {
        // The permissions of another user's file stay as they are; `exposure` reports it.
        let _ = tighten_file(&file);
    }
}

/// Options for a file beside a database.
pub(super) fn for_owner() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(OWNER);
    options
}

fn tighten_file(file: &Path) -> io::Result<()> {
    let metadata = fs::metadata(file)?;
    if !metadata.is_file() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    let tight = if mode & GROUP_WRITES == 0 { mode & !(GROUP | OTHERS) } else { mode & !OTHERS };
    if tight != mode {
        fs::set_permissions(file, Permissions::from_mode(tight))?;
    }
    Ok(())
}

fn files(database: &Path) -> impl Iterator<Item = PathBuf> {
    [""].into_iter().chain(COMPANIONS).map(move |suffix| {
        let mut name = OsString::from(database);
        name.push(suffix);
        PathBuf::from(name)
    })
}

/// The users other than the owner who have access to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exposure {
    /// Its owner alone.
    Owner,
    /// Its group, which may write, too.
    Group,
    /// Users who have nothing to do with it: they can read it, or put another file in its place.
    Others,
}

/// Finds who has access to a database, to the files beside it and to their directory: a user who may write to
/// that can put other files in their places.
///
/// # Errors
/// If the database cannot be looked at.
pub fn exposure(database: &Path) -> io::Result<Exposure> {
    fs::metadata(database)?;
    let mut exposure = match directory_mode(database)? {
        mode if mode & STICKY != 0 => Exposure::Owner,
        mode if mode & OTHERS_WRITE != 0 => Exposure::Others,
        mode if mode & GROUP_WRITES != 0 => Exposure::Group,
        _ => Exposure::Owner,
    };
    for file in files(database) {
        let Ok(metadata) = fs::metadata(file) else { continue };
        exposure = exposure.max(match metadata.permissions().mode() {
            mode if mode & OTHERS != 0 => Exposure::Others,
            mode if mode & GROUP_WRITES != 0 => Exposure::Group,
            mode if mode & GROUP != 0 => Exposure::Others,
            _ => Exposure::Owner,
        });
    }
    Ok(exposure)
}

fn directory_mode(database: &Path) -> io::Result<u32> {
    let directory = database.parent().filter(|directory| !directory.as_os_str().is_empty());
    Ok(fs::metadata(directory.unwrap_or(Path::new(".")))?.permissions().mode())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn with_mode(database: &Path, mode: u32) {
        for file in files(database) {
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        }
    }

    #[test]
    fn what_is_made_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("a/b/db");
        make_directory(database.parent().unwrap()).unwrap();
        make_file(&database).unwrap();
        assert_eq!(mode(&database), 0o600);
        assert_eq!([mode(&dir.path().join("a")), mode(&dir.path().join("a/b"))], [0o700; 2]);
        assert_eq!(exposure(&database).unwrap(), Exposure::Owner);
    }

    #[test]
    fn users_who_may_write_to_the_directory_have_access() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("db");
        with_mode(&database, 0o600);
        for (mode, exposed) in [
            (0o700, Exposure::Owner),
            (0o755, Exposure::Owner),
            (0o770, Exposure::Group),
            (0o777, Exposure::Others),
            (0o1777, Exposure::Owner),
        ] {
            fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(exposure(&database).unwrap(), exposed, "{mode:o}");
        }
    }

    #[test]
    fn what_is_there_is_tightened_but_for_a_group_that_may_write() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("db");
        for (before, exposed, after, left) in [
            (0o644, Exposure::Others, 0o600, Exposure::Owner),
            (0o640, Exposure::Others, 0o600, Exposure::Owner),
            (0o666, Exposure::Others, 0o660, Exposure::Group),
            (0o660, Exposure::Group, 0o660, Exposure::Group),
            (0o600, Exposure::Owner, 0o600, Exposure::Owner),
        ] {
            with_mode(&database, before);
            assert_eq!(exposure(&database).unwrap(), exposed, "{before:o}");
            tighten(&database);
            for file in files(&database) {
                assert_eq!(mode(&file), after, "{before:o}: {}", file.display());
            }
            assert_eq!(exposure(&database).unwrap(), left, "{before:o}");
        }
    }
}
