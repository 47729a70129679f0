//! Every warning and error of the programs names its section of the runbook, and the section exists.

use std::{collections::BTreeSet, fs, path::Path};

use crate::docs::pages::{page, root};

/// The macros of a line that an operator has to see.
const MACROS: [&str; 4] = ["warn!(", "error!(", "log_failure!(", "log_lost!("];
/// The file that counts lines of others, and the one whose lines take the section from the part.
const OTHERS: [&str; 2] = ["shared/boot/src/log/rate_limit.rs", "shared/boot/src/health/mod.rs"];

/// Calls `take` with the path and the text of each source file of the programs.
fn sources(folder: &Path, take: &mut impl FnMut(&str, &str)) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !["target", "tests", "wt"].contains(&&*name) {
                sources(&path, take);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).expect("a source file");
            let path = path.strip_prefix(root()).expect("within the repository");
            take(&path.to_string_lossy(), &text);
        }
    }
}

/// Returns what is between the bracket at the beginning of the text and the one that closes it.
fn arguments(text: &str) -> &str {
    let (mut depth, mut in_text, mut escaped) = (1, false, false);
    let end = text.char_indices().find(|(_, c)| {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = in_text,
            '"' => in_text = !in_text,
            '(' if !in_text => depth += 1,
            ')' if !in_text => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    &text[..end.expect("it is closed").0]
}

/// Returns the texts in double quotes that follow `what`.
fn quoted_after<'a>(text: &'a str, what: &str) -> impl Iterator<Item = &'a str> {
    text.split(what).skip(1).filter_map(|rest| rest.split('"').next())
}

#[test]
fn every_warning_names_a_section_of_the_runbook() {
    let anchors: BTreeSet<String> = page("docs/how-to/runbook.md").anchors().into_iter().collect();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    sources(&root(), &mut |path, text| {
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for name in MACROS {
            for (at, _) in code.match_indices(name) {
                let line = code[..at].rsplit('\n').next().unwrap_or_default();
                if line.contains("//") || line.ends_with('_') || OTHERS.contains(&path) {
                    continue;
                }
                let call = arguments(&code[at + name.len()..]);
                if call.starts_with('$') {
                    continue;
                }
                seen += 1;
                let section = quoted_after(call, "runbook = \"").next();
                if !section.is_some_and(|section| anchors.contains(section)) {
                    let start: String = call.split_whitespace().collect::<Vec<_>>().join(" ");
                    wrong.push(format!("{path}: {name}{start}"));
                }
            }
        }
        // Parts of health have a section each.
        let is_section = |text: &&str| {
            text.matches('-').count() > 1
                && text.chars().all(|c| c == '-' || c.is_ascii_lowercase())
        };
        if code.contains("PartName") {
            let calls = code.match_indices("PartName::new(").map(|(at, call)| at + call.len());
            let of_calls =
                calls.flat_map(|at| arguments(&code[at..]).split('"')).filter(is_section);
            let constants = quoted_after(code, ": &str = \"").filter(is_section);
            let sections = of_calls.chain(constants).filter(|section| !anchors.contains(*section));
            wrong.extend(sections.map(str::to_owned));
        }
    });
    assert!(wrong.is_empty(), "warnings without a section of the runbook: {wrong:#?}");
    assert!(seen > 50, "only {seen} were found");
}
