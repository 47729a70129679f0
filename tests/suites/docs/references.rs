//! Pages and headings, files and tests that the pages refer to exist.

use std::{collections::BTreeSet, fs, path::Path};

use crate::docs::pages::{Page, page, pages, root};

/// Returns the folders at the top of the repository, without what is built or hidden.
fn top_folders() -> Vec<String> {
    let entries =
        fs::read_dir(root()).expect("the repository").map(|entry| entry.expect("an entry"));
    let folders = entries.filter(|entry| entry.path().is_dir());
    let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.') && name != "target").collect()
}

#[test]
fn every_link_between_pages_leads_to_a_page_and_to_a_heading_of_it() {
    let mut wrong = Vec::new();
    for from in pages() {
        for link in from.links() {
            if link.starts_with("http") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let folder = root().join(&from.name).parent().expect("a folder").to_owned();
            let to = if file.is_empty() { root().join(&from.name) } else { folder.join(file) };
            let is_there = to.exists()
                && (anchor.is_empty() || {
                    let text = fs::read_to_string(&to).unwrap_or_default();
                    let name = String::new();
                    Page { name, text }.anchors().iter().any(|a| a == anchor)
                });
            if !is_there {
                wrong.push(format!("{}: {link}", from.name));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
}

#[test]
fn the_table_of_contents_has_every_page_of_the_book() {
    let contents = page("docs/SUMMARY.md").links();
    let pages = pages().into_iter().map(|page| page.name);
    let in_book = pages.filter_map(|name| name.strip_prefix("docs/").map(str::to_owned));
    let missing: Vec<_> =
        in_book.filter(|name| name != "SUMMARY.md" && !contents.contains(name)).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not list {missing:?}");
}

#[test]
fn every_path_that_a_page_names_exists() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    let folders = [top_folders(), vec![".ci".to_owned()]].concat();
    for page in pages() {
        for span in page.code_spans() {
            let begin = span.split_once('/').map(|(begin, _)| begin);
            let is_path = begin.is_some_and(|begin| folders.iter().any(|top| top == begin))
                && !span
                    .contains(|c: char| c.is_whitespace() || matches!(c, '{' | '*' | '<' | '…'));
            // Some pages name paths that a reader makes, with placeholders in upper case.
            if is_path && !span.contains(|c: char| c.is_ascii_uppercase()) {
                seen += 1;
                if !root().join(&span).exists() {
                    wrong.push(format!("{}: {span}", page.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "paths that do not exist: {wrong:#?}");
    assert!(seen > 40, "only {seen} paths were found");
}

/// Returns the pages that name tests, each with the least number that it names.
fn pages_of_tests() -> [(Page, usize); 3] {
    let hostile = "tests/suites/hostile/mod.rs";
    let source = fs::read_to_string(root().join(hostile)).expect("a source file");
    let header: Vec<&str> = source.lines().filter_map(|line| line.strip_prefix("//!")).collect();
    let header = Page { name: hostile.to_owned(), text: header.join("\n") };
    [
        (page("docs/explanation/guarantees.md"), 26),
        (page("docs/contributing/attacks.md"), 16),
        (header, 11),
    ]
}

#[test]
fn every_test_that_holds_a_guarantee_or_repeats_an_attack_exists() {
    let mut tests = BTreeSet::new();
    for folder in top_folders() {
        collect_functions(&root().join(folder), &mut tests);
    }
    let mut missing = Vec::new();
    for (page, least) in pages_of_tests() {
        let spans = page.code_spans().into_iter();
        let named: BTreeSet<String> = spans
            .filter(|span| span.matches('_').count() >= 4 && !span.contains([' ', '-']))
            .collect();
        let name = &page.name;
        assert!(named.len() >= least, "{name} names only {} tests", named.len());
        missing.extend(named.difference(&tests).map(|test| format!("{name}: {test}")));
    }
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}

fn collect_functions(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let keyword = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => "fn ",
            Some("py") => "def ",
            _ if path.is_dir() => {
                collect_functions(&path, names);
                continue;
            }
            _ => continue,
        };
        let text = fs::read_to_string(&path).expect("a source file");
        let functions = text.split(keyword).skip(1);
        names.extend(functions.filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())));
    }
}

#[test]
fn the_front_page_is_short_and_the_glossary_too() {
    let words = page("README.md").text.split_whitespace().count();
    assert!(words <= 600, "README.md has {words} words");
    let glossary = page("docs/reference/glossary.md");
    let rows = glossary.prose().filter(|line| line.starts_with("| ")).count();
    assert!(rows - 1 <= 32, "the glossary has {} entries", rows - 1);
}
