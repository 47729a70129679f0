//! What the pages refer to is there: pages and headings, files, tests.

use std::{collections::BTreeSet, fs, path::Path};

use crate::pages::{Page, page, pages, root};

/// Folders of the repository. A code span that begins with one of them is a path.
const TOP: [&str; 9] = [
    "shared/",
    "ingest/",
    "fanout-worker/",
    "operator/",
    "pushctl/",
    "tests/",
    "deploy/",
    "docs/",
    ".ci/",
];

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
fn every_path_that_a_page_names_exists() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages() {
        for span in page.code_spans() {
            let is_path = TOP.iter().any(|top| span.starts_with(top))
                && !span
                    .contains(|c: char| c.is_whitespace() || matches!(c, '{' | '*' | '<' | '…'));
            // Some pages name paths that a reader makes: upper-case words stand for names.
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

/// The pages that name tests, each at least so many.
fn pages_of_tests() -> [(Page, usize); 3] {
    let hostile = "tests/suites/hostile/main.rs";
    let source = fs::read_to_string(root().join(hostile)).expect("a source file");
    let header: Vec<&str> = source.lines().filter_map(|line| line.strip_prefix("//!")).collect();
    let header = Page { name: hostile.to_owned(), text: header.join("\n") };
    [(page("docs/guarantees.md"), 26), (page("docs/attacks.md"), 16), (header, 11)]
}

#[test]
fn every_test_that_holds_a_guarantee_or_repeats_an_attack_exists() {
    let mut tests = BTreeSet::new();
    for folder in [
        "tests",
        "shared",
        "ingest",
        "fanout-worker",
        "transports",
        "broker",
        "operator",
        "pushctl",
    ] {
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
    assert!(words <= 900, "README.md has {words} words");
    let glossary = page("docs/glossary.md");
    let rows = glossary.prose().filter(|line| line.starts_with("| ")).count();
    assert!(rows - 1 <= 30, "the glossary has {} entries", rows - 1);
}
