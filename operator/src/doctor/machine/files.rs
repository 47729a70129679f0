//! Access to the files of the embedded engines, and to the keys that sign the logins of devices and that seal accounts.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use push_boot::engines::{EngineSettings, IndexUrl, QueueUrl};
use push_sqlite::{Exposure, exposure};
use push_store::Finding;

const SUBJECT: &str = "file access";

/// Returns a finding for each database file.
pub(in crate::doctor) fn judge(engines: &EngineSettings) -> Vec<Finding> {
    let mut files = Vec::new();
    if let QueueUrl::Sqlite(path) = &engines.queue {
        files.push(path);
    }
    for url in [Some(&engines.index), engines.ledger.as_ref()].into_iter().flatten() {
        if let IndexUrl::Sqlite(path) = url {
            files.push(path);
        }
    }
    files.dedup();
    files.into_iter().filter_map(|path| judge_file(path)).collect()
}

/// Judges one file; if it is missing, the finding of its engine says that.
fn judge_file(path: &Path) -> Option<Finding> {
    let file = path.display();
    Some(match exposure(path) {
        Ok(Exposure::Owner) => {
            Finding::ok(SUBJECT, format!("{file} is readable for its owner only"))
        }
        Ok(Exposure::Group) => {
            Finding::ok(SUBJECT, format!("{file} is readable and writable for its group"))
        }
        Ok(Exposure::Others) => {
            let detail = format!(
                "{file}, or a file beside it, can be read by other users, with hashes of secrets \
                 and tokens of devices"
            );
            let remedy = format!("as its owner, run chmod 600 on it and on {file}-*");
            Finding::warning(SUBJECT, detail, remedy)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => not_seen(path, &error),
    })
}

fn not_seen(path: &Path, error: &io::Error) -> Finding {
    let detail = format!("{} cannot be looked at: {error}", path.display());
    Finding::warning(SUBJECT, detail, "run doctor as the user of the service")
}

/// Returns a finding for the file of device keys, if there is one. A group may read it: that is how `ingest`
/// under another user gets the keys.
pub(in crate::doctor) fn judge_device_keys(path: &Path) -> Option<Finding> {
    let risk = "who can log in as any device then";
    let remedy = "as its owner, run chmod 600 on it, and pushctl key rotate --lead 0s --overlap \
                    0s if it may have been read";
    judge_keys(path, risk, remedy)
}

/// Returns a finding for the file of seal keys, if there is one. A group may read it: that is how workers and
/// consoles under other users get the keys.
pub(in crate::doctor) fn judge_seal_keys(path: &Path) -> Option<Finding> {
    let risk = "who can unseal the accounts of a copy of the index then";
    let remedy = "as its owner, run chmod 600 on it. If it may have been read, rotate the seal keys, and \
                  replace the credentials at the providers if a copy of the index may have been read as well";
    judge_keys(path, risk, remedy)
}

/// Judges a file of keys; `risk` continues "other users, …".
fn judge_keys(path: &Path, risk: &str, remedy: &str) -> Option<Finding> {
    const ANY: u32 = 0o007;
    const GROUP: u32 = 0o070;
    let file = path.display();
    let mode = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode(),
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return Some(not_seen(path, &error)),
    };
    Some(if mode & ANY != 0 {
        let detail = format!("{file} can be read or replaced by other users, {risk}");
        Finding::warning(SUBJECT, detail, remedy)
    } else if mode & GROUP != 0 {
        Finding::ok(SUBJECT, format!("{file} is readable for its group"))
    } else {
        Finding::ok(SUBJECT, format!("{file} is readable for its owner only"))
    })
}

/// Returns a finding for the data directory, if it is there and other users can look into it.
pub(in crate::doctor) fn judge_folder(dir: &Path) -> Option<Finding> {
    const OTHERS: u32 = 0o007;
    let mode = fs::metadata(dir).ok()?.permissions().mode();
    (mode & OTHERS != 0).then(|| {
        let dir = dir.display();
        Finding::warning(
            SUBJECT,
            format!("{dir} is open to other users (mode {:03o})", mode & 0o777),
            format!("as its owner, run chmod 700 {dir}"),
        )
    })
}

/// Returns a finding for each password file that other users can read.
pub(in crate::doctor) fn judge_secrets(files: Vec<(String, PathBuf)>) -> Vec<Finding> {
    const ANY: u32 = 0o006;
    let judge = |(flag, path): (String, PathBuf)| {
        let mode = fs::metadata(&path).ok()?.permissions().mode();
        (mode & ANY != 0).then(|| {
            let path = path.display();
            Finding::warning(
                SUBJECT,
                format!("{path} ({flag}) holds a password that other users can read"),
                "as its owner, run chmod 600 on it, and change the password if it may have been \
                 read",
            )
        })
    };
    files.into_iter().filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use push_store::Level;

    use super::*;

    fn with_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_data_directory_that_is_open_is_a_warning_with_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, is_open) in [(0o700, false), (0o750, false), (0o755, true), (0o701, true)] {
            with_mode(dir.path(), mode);
            let found = judge_folder(dir.path());
            assert_eq!(found.is_some(), is_open, "{mode:o}");
            assert!(found.is_none_or(|found| found.remedy().unwrap().contains("chmod 700")));
        }
        with_mode(dir.path(), 0o700);
        assert_eq!(judge_folder(Path::new("/nowhere")), None);
    }

    #[test]
    fn a_file_of_a_password_that_others_can_read_is_a_warning_that_names_its_flag() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("url");
        fs::write(&path, "amqp://u:hunter2@h").unwrap();
        for (mode, warnings) in [(0o600, 0), (0o640, 0), (0o644, 1)] {
            with_mode(&path, mode);
            let found = judge_secrets(vec![("--queue-url-file".to_owned(), path.clone())]);
            assert_eq!(found.len(), warnings, "{mode:o}");
            for found in found {
                assert!(
                    found.detail.contains("--queue-url-file") && !found.detail.contains("hunt")
                );
            }
        }
    }

    /// Judges a file in each of these modes, in some of which other users have access.
    fn judge_each(path: &Path, judge: fn(&Path) -> Option<Finding>, modes: [(u32, Level); 4]) {
        for (mode, level) in modes {
            fs::write(path, "").unwrap();
            with_mode(path, mode);
            let found = judge(path).unwrap();
            assert_eq!(found.level, level, "{mode:o}: {}", found.detail);
            let says_how = found.remedy().is_some_and(|remedy| remedy.contains("chmod 600"));
            assert_eq!(says_how, level == Level::Warning);
        }
    }

    #[test]
    fn keys_that_other_users_can_read_are_a_warning_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        let (ok, warning) = (Level::Ok, Level::Warning);
        let modes = [(0o600, ok), (0o640, ok), (0o644, warning), (0o602, warning)];
        for judge in [judge_device_keys, judge_seal_keys] {
            assert!(judge(&path).is_none(), "there are none");
            judge_each(&path, judge, modes);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_file_that_other_users_can_read_is_a_warning_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.sqlite3");
        assert_eq!(judge_file(&path), None, "its engine's finding says that there is none");
        let behind_a_file = dir.path().join("file/index.sqlite3");
        fs::write(dir.path().join("file"), "").unwrap();
        let found = judge_file(&behind_a_file).unwrap();
        assert_eq!(found.level, Level::Warning);
        assert!(found.remedy().unwrap().contains("as the user of the service"), "{found:?}");
        let (ok, warning) = (Level::Ok, Level::Warning);
        let modes = [(0o600, ok), (0o660, ok), (0o644, warning), (0o604, warning)];
        judge_each(&path, judge_file, modes);
    }
}
