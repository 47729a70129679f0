//! The list of suites in `tests/suites/README.md` has a line for each folder of `tests/suites`.

use std::{fs, path::Path};

/// The names in the first column of the list, in its order.
fn listed(list: &str) -> Vec<&str> {
    let rows = list.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split_once("` |")).map(|(name, _)| name).collect()
}

#[test]
fn every_suite_has_a_folder_a_module_and_a_line_in_the_list() {
    let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites");
    let entries = fs::read_dir(&suites).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let mut folders: Vec<_> =
        folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    folders.sort();

    let list = fs::read_to_string(suites.join("README.md")).unwrap();
    assert_eq!(listed(&list), folders, "the lines of README.md, sorted by name");

    let programs = ["main.rs", "with_ingest.rs"];
    let programs = programs.map(|file| fs::read_to_string(suites.join(file)).unwrap()).concat();
    let modules = programs.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let mut modules: Vec<_> = modules.collect();
    modules.sort_unstable();
    assert_eq!(modules, folders, "each suite is a module of one of the two programs");
}
