//! Settings and commands that the pages name are those of the programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use push_tests::help::commands;

use crate::docs::pages::{page, pages, root};

/// Flags of cargo, of Docker and of the commands in deploy/ that the pages show, and the flag that no
/// help shows.
const OF_OTHERS: [&str; 15] = [
    TUNE,
    "--release",
    "--locked",
    "--profile",
    "--path",
    "--detach",
    "--scale",
    "--volumes",
    "--build",
    "--format",
    "--wait",
    "--delete-current",
    "--replicas",
    "--build-arg",
    "--in-place",
];

/// Replaces constants; `docs/reference/configuration.md` lists their keys.
const TUNE: &str = "--tune";
const TUNE_VARIABLE: &str = "PUSH_TUNE";

/// The end of the name of an event of UnifiedPush, which is no variable.
const EVENT: &str = "PUSH_EVENT";

/// Returns what each program, each command of `pushctl` and each script says of itself.
fn help() -> BTreeMap<String, String> {
    let mut help: BTreeMap<String, String> =
        commands().into_iter().map(|command| (command.name(), command.help)).collect();
    for script in ["tests/run", "tests/bench", "deploy/release", "deploy/install"] {
        let output = Command::new("bash").arg(root().join(script)).arg("--help").output();
        let text = String::from_utf8(output.expect("the script").stdout).expect("text");
        help.insert(script.to_owned(), text);
    }
    help
}

/// Names in a text that begin like this: flags, variables.
fn names<'a>(text: &'a str, begin: &str) -> BTreeSet<&'a str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')));
    words.filter(|word| word.starts_with(begin) && word.len() > begin.len()).collect()
}

#[test]
fn every_setting_that_a_page_names_is_one_of_a_program() {
    let help = help().into_values().collect::<Vec<_>>().join("\n");
    let (flags, variables) = (names(&help, "--"), names(&help, "PUSH_"));
    let mut wrong = Vec::new();
    // The changelog names what is gone, too.
    for page in pages().into_iter().filter(|page| page.name != "CHANGELOG.md") {
        let spans = page.code_spans().join("\n");
        let unknown = names(&spans, "--").into_iter();
        let unknown = unknown.filter(|flag| !flags.contains(flag) && !OF_OTHERS.contains(flag));
        wrong.extend(unknown.map(|flag| format!("{}: {flag}", page.name)));
        // The variables of the compose stack are its own, and docker refuses what is missing.
        if !page.name.starts_with("deploy/") {
            let unknown = names(&page.text, "PUSH_").into_iter();
            let unknown = unknown
                .filter(|name| !variables.contains(name) && ![TUNE_VARIABLE, EVENT].contains(name));
            wrong.extend(unknown.map(|variable| format!("{}: {variable}", page.name)));
        }
    }
    assert!(flags.len() > 60 && variables.len() > 50, "the help was not understood");
    assert!(wrong.is_empty(), "no program has these settings: {wrong:#?}");
}

#[test]
fn every_constant_that_a_page_names_can_be_tuned() {
    let reference = page("docs/reference/configuration.md").text;
    let (_, table) = reference.rsplit_once("| key |").expect("the table of constants");
    let keys: BTreeSet<&str> = table.lines().filter_map(|line| line.split('`').nth(1)).collect();
    assert!(keys.len() > 40, "the table was not understood: {keys:?}");
    let mut wrong = Vec::new();
    for page in pages().into_iter().filter(|page| page.name != "CHANGELOG.md") {
        for span in page.code_spans() {
            let named = span.strip_prefix(TUNE).and_then(|key| key.trim().split('=').next());
            let unknown = named.filter(|key| !keys.contains(key) && !matches!(*key, "" | "key"));
            wrong.extend(unknown.map(|key| format!("{}: {key}", page.name)));
        }
    }
    assert!(wrong.is_empty(), "no program has these constants: {wrong:#?}");
}

#[test]
fn every_command_that_a_page_shows_exists() {
    let help = help();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages() {
        let spans = page.code_spans();
        let shown = spans.iter().map(String::as_str).chain(page.commands());
        for line in shown.filter(|line| line.starts_with("pushctl ")) {
            seen += 1;
            wrong.extend(unknown(&help, line).map(|command| format!("{}: {command}", page.name)));
        }
    }
    assert!(seen > 20, "only {seen} commands were found");
    assert!(wrong.is_empty(), "pushctl has no such commands: {wrong:#?}");
}

/// The command of a line that does not exist. `pushctl app create, list` shows two commands.
fn unknown(help: &BTreeMap<String, String>, line: &str) -> Option<String> {
    let (mut command, mut has_argument) = ("pushctl".to_owned(), false);
    for word in line.split_whitespace().skip(1) {
        let (name, is_one_of_several) = match word.strip_suffix(',') {
            Some(name) => (name, true),
            None => (word, false),
        };
        let begin = format!("{command} ");
        if !help.keys().any(|other| other.starts_with(&begin)) {
            break;
        }
        let deeper = format!("{command} {name}");
        if !help.contains_key(&deeper) {
            // `pushctl app transport set APP_ID fcm`: an argument stands before the command.
            if !has_argument && help.get(&command).is_some_and(|help| help.contains("> <COMMAND>"))
            {
                has_argument = true;
                continue;
            }
            return Some(deeper);
        }
        if !is_one_of_several {
            command = deeper;
        }
    }
    None
}
