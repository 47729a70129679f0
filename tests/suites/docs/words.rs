//! One word for one thing: words that were given up do not come back.

use std::{fs, path::Path};

use crate::pages::root;

/// Words for persons: a value, a connection or a program is named by what it is.
const PERSONS: [&str; 7] =
    ["somebody", "someone", "nobody", "whoever", "anybody", "anyone", "everybody"];

/// Words of earlier versions, each with the word that the field has for it. Flags and names on the
/// wire stay: `--strands`, `PUSH_STRANDS`.
const GIVEN_UP: [(&str, &str); 7] = [
    ("strand", "partition"),
    ("overtaken", "checkpoint conflict"),
    ("verdict", "disposition, readiness"),
    ("mistakes", "configuration errors"),
    ("patience", "timeout, retry policy"),
    ("waiting room", "batch queue"),
    ("right of way", "priority"),
];

/// Where a word that was given up is a name on the wire, in a database or in metrics.
const PUBLISHED: [(&str, &str); 7] = [
    ("shared/index/src/redis/ledger/expanded/fields.rs", "strand"),
    ("shared/index/src/sqlite/schema.rs", "strand"),
    ("shared/model/src/envelope/task/v1.rs", "strand"),
    ("fanout-worker/src/metrics/mod.rs", "verdict"),
    ("fanout-worker/src/metrics/families.rs", "verdict"),
    ("fanout-worker/src/intake/disposition.rs", "verdict"),
    ("docs/metrics.md", "verdict"),
];

const ENDINGS: [&str; 6] = ["rs", "lua", "md", "toml", "sh", "yml"];

#[test]
fn no_text_of_the_project_uses_a_word_that_was_given_up() {
    let mut hits = Vec::new();
    for folder in ["shared", "ingest", "fanout-worker", "pushctl", "tests", "docs", "deploy"] {
        collect(&root().join(folder), &mut hits);
    }
    for page in crate::pages::pages() {
        look(&page.name, &page.text, &mut hits);
    }
    assert!(hits.is_empty(), "{} lines: {hits:#?}", hits.len());
}

fn collect(folder: &Path, hits: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, hits);
        } else if path.extension().is_some_and(|end| ENDINGS.iter().any(|ending| end == *ending))
            && !path.ends_with("docs/words.rs")
        {
            let text = fs::read_to_string(&path).expect("text");
            look(&path.display().to_string(), &text, hits);
        }
    }
}

fn look(name: &str, text: &str, hits: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        let is_person = PERSONS.iter().any(|word| lower.contains(word));
        let given_up = GIVEN_UP.iter().find(|(word, _)| {
            let is_published =
                PUBLISHED.iter().any(|(file, of)| name.ends_with(file) && of == word);
            !is_published
                && lower.match_indices(word).any(|(at, _)| {
                    // Flags, variables and names in quotation marks are published, too.
                    let before = &lower[..at];
                    !before.ends_with(['-', '"', '\'', '{'])
                        && !before.ends_with("push_")
                        && !before.ends_with("push_mqtt_")
                })
        });
        if is_person || given_up.is_some() {
            let word = given_up.map_or("the name of what it is", |(_, better)| *better);
            hits.push(format!("{name}:{}: {} ({word})", number + 1, line.trim()));
        }
    }
}
