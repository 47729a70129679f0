//! The list of suites in `tests/suites/README.md`: a line for each folder of `tests/suites`, and a
//! test target of the same name.

use std::{fs, path::Path};

use serde::Deserialize;

#[derive(Deserialize)]
struct Manifest {
    test: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    path: String,
}

/// The names in the first column of the list, in its order.
fn listed(list: &str) -> Vec<&str> {
    let rows = list.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split_once("` |")).map(|(name, _)| name).collect()
}

#[test]
fn every_suite_has_a_folder_a_line_in_the_list_and_a_test_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(root.join("suites")).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let mut folders: Vec<_> =
        folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    folders.sort();

    let list = fs::read_to_string(root.join("suites/README.md")).unwrap();
    assert_eq!(listed(&list), folders, "the lines of suites/README.md, sorted by name");

    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let manifest: Manifest = toml::from_str(&manifest).unwrap();
    let targets = manifest.test.into_iter().filter(|target| target.path.starts_with("suites/"));
    let targets: Vec<_> = targets.map(|target| (target.name, target.path)).collect();
    let expected: Vec<_> = folders
        .into_iter()
        .map(|name| {
            let path = format!("suites/{name}/main.rs");
            (name, path)
        })
        .collect();
    assert_eq!(targets, expected, "the test targets of Cargo.toml, sorted by name");
}
