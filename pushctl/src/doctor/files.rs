//! Who can read the files of the embedded engines.

use std::path::Path;

use push_index::{Finding, Level};
use push_service::engines::{EngineSettings, IndexUrl, QueueUrl};
use push_sqlite::{Exposure, exposure};

use super::finding::finding;

const SUBJECT: &str = "file access";

/// A finding for each database file.
pub(super) fn judge(engines: &EngineSettings) -> Vec<Finding> {
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
    files.into_iter().map(|path| judge_file(path)).collect()
}

fn judge_file(path: &Path) -> Finding {
    let file = path.display();
    match exposure(path) {
        Ok(Exposure::Owner) => {
            finding(Level::Ok, SUBJECT, format!("{file} is readable for its owner only"))
        }
        Ok(Exposure::Group) => {
            finding(Level::Ok, SUBJECT, format!("{file} is readable and writable for its group"))
        }
        Ok(Exposure::Others) => {
            let detail = format!(
                "{file}, or a file beside it, can be read by other users, with hashes of secrets \
                 and tokens of devices: as its owner, run chmod 600 on it and on {file}-*"
            );
            finding(Level::Warning, SUBJECT, detail)
        }
        Err(error) => {
            finding(Level::Warning, SUBJECT, format!("{file} cannot be looked at: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_file_that_other_users_can_read_is_a_warning_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.sqlite3");
        assert_eq!(judge_file(&path).level, Level::Warning);
        for (mode, level) in [(0o600, Level::Ok), (0o660, Level::Ok), (0o644, Level::Warning)] {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let found = judge_file(&path);
            assert_eq!(found.level, level, "{mode:o}: {}", found.detail);
            assert_eq!(found.detail.contains("chmod 600"), level == Level::Warning);
        }
    }
}
