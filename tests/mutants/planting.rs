//! A copy of the source with all faults in it.
//!
//! Each fault asks at run time whether it is chosen, so one build serves all of them. The function
//! that answers is added to the copy only; the shipped source has none. Unchanged files of the copy
//! are not written again and keep their times, so that a second run builds only what changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use crate::{
    Failure,
    list::{Edit, Fault, PLANTED},
};

/// The environment variable that chooses a fault.
pub(crate) const CHOSEN: &str = "PUSH_PLANTED";

/// The crate that answers whether a fault is chosen: nearly all others depend on it.
const LIB: &str = "shared/model/src/lib.rs";
/// Tells a crate, under the name that others use for it, whether a fault is chosen.
const ANSWER: &str = r#"
extern crate self as push_model;

/// The planted fault that this process has; empty for none.
pub fn planted_name() -> &'static str {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("PUSH_PLANTED").unwrap_or_default())
}

/// Returns true if this process has this planted fault.
pub fn planted(fault: &str) -> bool {
    planted_name() == fault
}
"#;

const SCRIPTS: &str = "shared/store/src/redis/script.rs";
const SCRIPT: &str = "pub fn script(text: &str) -> Script {\n";
/// Gives each Lua script the name of the chosen fault.
const TELL_SCRIPT: &str =
    "let text = &format!(\"local planted = '{}'\\n{text}\", push_model::planted_name());\n";

const MANIFEST: &str = "Cargo.toml";
const VERSION: &str = "\nversion = \"";
/// In a build folder that two workspaces share, Cargo tells their packages apart by version only.
const OTHER_VERSION: &str = "\nversion = \"0.0.0-planted+";

/// Copies the files of the repository at `root` to `tree`, with all faults planted.
pub(crate) async fn plant(root: &Path, tree: &Path, faults: &[Fault]) -> Result<(), Failure> {
    let mut edits: BTreeMap<&str, Vec<(&str, &Edit)>> = BTreeMap::new();
    for fault in faults {
        for edit in &fault.edit {
            edits.entry(&edit.file).or_default().push((&fault.name, edit));
        }
    }
    let files = files(root).await?;
    if let Some(file) = edits.keys().find(|file| !files.contains(**file)) {
        return Err(Failure::List(format!("there is no file {file}")));
    }
    for file in &files {
        let from = root.join(file);
        let mut content = fs::read(&from).map_err(|error| Failure::file(&from, error))?;
        if let Some(edits) = edits.get(file.as_str()) {
            content = edited(file, text(file, content)?, edits)?.into_bytes();
        }
        content = match file.as_str() {
            LIB => (text(file, content)? + ANSWER).into_bytes(),
            SCRIPTS => {
                let told = [SCRIPT, TELL_SCRIPT].concat();
                once(file, &text(file, content)?, SCRIPT, &told)?.into_bytes()
            }
            MANIFEST => once(file, &text(file, content)?, VERSION, OTHER_VERSION)?.into_bytes(),
            _ => content,
        };
        store(&from, &tree.join(file), &content)?;
    }
    remove_others(tree, tree, &files)
}

/// The files that git tracks, and the new ones that it does not ignore.
async fn files(root: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listed = git.output().await.map_err(|error| Failure::Program(format!("git: {error}")))?;
    if !listed.status.success() {
        return Err(Failure::Program(String::from_utf8_lossy(&listed.stderr).into_owned()));
    }
    let names = String::from_utf8_lossy(&listed.stdout);
    // A file that was removed may still be in git's index.
    let there = |name: &&str| !name.is_empty() && root.join(name).is_file();
    Ok(names.split('\0').filter(there).map(str::to_owned).collect())
}

fn text(file: &str, content: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(content).map_err(|_| Failure::List(format!("{file} is no text")))
}

/// The text with all edits made. Each is looked for in the original text.
fn edited(file: &str, text: String, edits: &[(&str, &Edit)]) -> Result<String, Failure> {
    let mut found = Vec::new();
    for (name, Edit { find, replace, .. }) in edits {
        let positions: Vec<usize> = text.match_indices(&**find).map(|(at, _)| at).collect();
        let [at] = *positions else {
            let times = positions.len();
            return Err(Failure::List(format!("{name}: {file} has its text {times} times")));
        };
        let chosen = if file.ends_with(".lua") {
            format!("(planted == '{name}')")
        } else {
            format!("push_model::planted(\"{name}\")")
        };
        found.push((at, at + find.len(), replace.replace(PLANTED, &chosen), name));
    }
    found.sort();
    if let Some([one, other]) = found.array_windows().find(|[one, other]| one.1 > other.0) {
        return Err(Failure::List(format!("{} and {} edit the same text", one.3, other.3)));
    }
    let mut edited = text;
    for (from, to, replacement, _) in found.into_iter().rev() {
        edited.replace_range(from..to, &replacement);
    }
    Ok(edited)
}

fn once(file: &str, text: &str, find: &str, replace: &str) -> Result<String, Failure> {
    if text.contains(find) {
        return Ok(text.replacen(find, replace, 1));
    }
    Err(Failure::List(format!("{file} has no {find:?}")))
}

/// Writes a file unless it exists with this content.
fn store(from: &Path, to: &Path, content: &[u8]) -> Result<(), Failure> {
    if fs::read(to).is_ok_and(|before| before == content) {
        return Ok(());
    }
    let wrong = |error| Failure::file(to, error);
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(wrong)?;
    }
    fs::write(to, content).map_err(wrong)?;
    let permissions = fs::metadata(from).map_err(wrong)?.permissions();
    fs::set_permissions(to, permissions).map_err(wrong)
}

/// Removes files of an earlier run that the repository does not have any more.
fn remove_others(folder: &Path, tree: &Path, files: &BTreeSet<String>) -> Result<(), Failure> {
    let entries = fs::read_dir(folder).map_err(|error| Failure::file(folder, error))?;
    let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    for path in paths {
        let name = path.strip_prefix(tree).unwrap_or(&path).to_string_lossy().into_owned();
        if path.is_dir() {
            remove_others(&path, tree, files)?;
        } else if !files.contains(&name) {
            fs::remove_file(&path).map_err(|error| Failure::file(&path, error))?;
        }
    }
    Ok(())
}
