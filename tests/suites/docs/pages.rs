//! The pages of the documentation, and what of their text can be checked.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folders whose Markdown files are documentation, from the top of the repository.
const FOLDERS: [&str; 10] = [
    "",
    "docs",
    "docs/tutorials",
    "docs/how-to",
    "docs/reference",
    "docs/explanation",
    "docs/contributing",
    "deploy",
    "deploy/k8s",
    "tests/suites",
];

/// A page and its text.
pub(crate) struct Page {
    /// From the top of the repository: `docs/how-to/tls.md`.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The top of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root().join(folder)).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                let name = Path::new(folder).join(name).to_string_lossy().into_owned();
                pages.push(Page { name, text: fs::read_to_string(&path).expect("a page") });
            }
        }
    }
    assert!(pages.len() >= 12, "pages were not found");
    pages
}

pub(crate) fn page(name: &str) -> Page {
    pages().into_iter().find(|page| page.name == name).expect("the page")
}

impl Page {
    /// The lines outside of code blocks.
    pub(crate) fn prose(&self) -> impl Iterator<Item = &str> {
        let mut in_block = false;
        self.text.lines().filter(move |line| {
            let is_fence = line.trim_start().starts_with("```");
            in_block ^= is_fence;
            !in_block && !is_fence
        })
    }

    /// The lines of the code blocks of shell commands.
    pub(crate) fn commands(&self) -> Vec<&str> {
        let (mut commands, mut in_shell) = (Vec::new(), false);
        for line in self.text.lines() {
            match line.trim() {
                "```sh" => in_shell = true,
                fence if fence.starts_with("```") => in_shell = false,
                command if in_shell => commands.push(command),
                _ => {}
            }
        }
        commands
    }

    /// Returns what stands between backticks in the prose.
    pub(crate) fn code_spans(&self) -> Vec<String> {
        let prose = self.prose().collect::<Vec<_>>().join("\n");
        prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    pub(crate) fn links(&self) -> Vec<String> {
        let prose = self.prose().collect::<Vec<_>>().join("\n");
        let after = prose.split("](").skip(1);
        after.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
    }

    /// The anchors of the headings, as GitHub makes them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let headings = self.prose().filter_map(|line| {
            let heading = line.trim_start_matches('#');
            (heading.len() < line.len()).then(|| heading.trim())
        });
        headings.map(anchor).collect()
    }
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
