//! The files that the embedded store leaves are readable for their owner only, whatever the umask.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use push_tests::service::built;
use serde_json::Value;
use tempfile::TempDir;

/// Runs `pushctl` under this umask, and returns its standard output.
fn run(umask: &str, data_dir: &Path, command: &[&str]) -> String {
    let script = format!("umask {umask}; exec \"$@\"");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(built("pushctl")).arg("--data-dir").arg(data_dir);
    let output = shell.args(command).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Returns what doctor finds of the access to the files.
fn found(data_dir: &Path) -> Vec<Value> {
    let findings: Vec<Value> =
        serde_json::from_str(&run("022", data_dir, &["doctor", "--json"])).unwrap();
    findings.into_iter().filter(|finding| finding["subject"] == "file access").collect()
}

#[test]
fn databases_are_made_for_their_owner_only_whatever_the_umask() {
    let folder = TempDir::new().unwrap();
    for umask in ["000", "022", "077"] {
        let data_dir = folder.path().join(umask).join("data");
        run(umask, &data_dir, &["app", "create", "news"]);
        run(umask, &data_dir, &["dead", "list"]);
        assert_eq!(mode(&data_dir), 0o700, "umask {umask}");
        let files = files(&data_dir);
        assert!(files.len() >= 4, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "umask {umask}: {}", file.display());
        }
    }
}

#[test]
fn doctor_warns_of_device_keys_that_other_users_can_read() {
    let folder = TempDir::new().unwrap();
    let data_dir = folder.path().join("data");
    run("022", &data_dir, &["key", "create"]);
    let of_keys = || {
        let is_of_keys =
            |finding: &Value| finding["detail"].as_str().unwrap().contains("device-keys");
        found(&data_dir).into_iter().find(is_of_keys).unwrap()
    };
    assert_eq!(of_keys()["level"], "ok");
    set_mode(&data_dir.join("device-keys.json"), 0o644);
    let finding = of_keys();
    assert_eq!(finding["level"], "warning", "{finding}");
    assert!(finding["remedy"].as_str().unwrap().contains("chmod 600"), "{finding}");
}

#[test]
fn databases_of_an_earlier_version_are_tightened_when_they_are_opened() {
    let folder = TempDir::new().unwrap();
    let data_dir = folder.path().join("data");
    run("022", &data_dir, &["app", "create", "news"]);
    run("022", &data_dir, &["dead", "list"]);
    for file in files(&data_dir) {
        set_mode(&file, 0o644);
    }
    assert_eq!(found(&data_dir).iter().filter(|finding| finding["level"] == "ok").count(), 2);
    for file in files(&data_dir) {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    // A group that may write was given its access on purpose.
    for file in files(&data_dir) {
        set_mode(&file, 0o660);
    }
    for finding in found(&data_dir) {
        assert!(finding["detail"].as_str().unwrap().contains("for its group"), "{finding}");
    }
}
