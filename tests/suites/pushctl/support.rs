//! A data directory, and commands that are run on it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};

use push_tests::service::pushctl_output;
use serde_json::Value;
use tempfile::TempDir;

/// Deadline of whatever must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A data directory of the standalone form, for one test.
pub(crate) struct Store(TempDir);

/// The end of a command, and its output.
pub(crate) struct Ran {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        assert!(self.ok, "{}", self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }

    /// Asserts that it failed with one line of error, and returns that line.
    pub(crate) fn refused(&self) -> &str {
        assert!(!self.ok, "{}", self.out);
        assert_eq!(self.err.trim_end().lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("error: ") && !self.err.contains("panicked"), "{}", self.err);
        self.err.trim_end()
    }
}

impl Store {
    pub(crate) fn new() -> Self {
        // With the permissions that the programs give it.
        let for_its_owner = Permissions::from_mode(0o700);
        Self(tempfile::Builder::new().permissions(for_its_owner).tempdir().unwrap())
    }

    /// Its data directory.
    pub(crate) fn dir(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) async fn run(&self, command: &[&str]) -> Ran {
        run_in(self.0.path(), command).await
    }
}

/// Runs a command of `pushctl` on this data directory.
pub(crate) async fn run_in(data_dir: &Path, command: &[&str]) -> Ran {
    let mut flags = vec!["--data-dir", data_dir.to_str().unwrap()];
    flags.extend(command);
    let output = pushctl_output(&flags).await;
    Ran {
        ok: output.status.success(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
