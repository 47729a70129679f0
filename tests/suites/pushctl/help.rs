//! The help and the output of all commands, as a person at a terminal of 80 columns sees them.

use std::process::{Command, Output, Stdio};

use push_tests::{help, service::built};

use crate::pushctl::support::Store;

const COLUMNS: usize = 80;

fn run(arguments: &[String]) -> Output {
    let mut command = Command::new(built("pushctl"));
    command.args(arguments).env("COLUMNS", COLUMNS.to_string()).stdin(Stdio::null());
    command.output().unwrap()
}

/// As [`run`], with a setting from the environment.
fn run_with_variable(arguments: &[String]) -> Output {
    let mut command = Command::new(built("pushctl"));
    command.args(arguments).env("COLUMNS", COLUMNS.to_string()).env("PUSH_NAMESPACE", "other");
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn assert_fits(name: &str, text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= COLUMNS, "{name} is wider than {COLUMNS} columns: {line}");
    }
}

#[test]
fn every_command_has_a_short_help_of_its_own_flags_and_a_long_one_within_80_columns() {
    // All settings of these commands are about themselves.
    const SERVICES: [&str; 2] = ["pushctl standalone", "pushctl broker"];
    let commands = help::commands();
    for command in commands.iter().filter(|command| command.program == "pushctl") {
        let name = command.name();
        for flag in ["-h", "--help"] {
            let help = run(&[&command.words[..], &[flag.to_owned()]].concat());
            assert!(help.status.success(), "{name} {flag}");
            let help = text(&help.stdout);
            assert_fits(&format!("{name} {flag}"), help);
            let has = |text: &str| help.contains(text);
            let is_long = flag == "--help";
            assert_eq!(has("--index-url") && has("--config <"), is_long, "{name} {flag}: {help}");
            if !is_long && !SERVICES.contains(&&*name) {
                for heading in ["Queue and stores:", "Logins of devices:"] {
                    assert!(!has(heading), "{name} -h shows {heading}");
                }
            }
            let (options, stores) = (help.find("\nOptions:"), help.find("\nQueue and stores:"));
            assert!(options.is_some() && (stores.is_none() || options < stores), "{name}: {help}");
        }
        let subcommands = command.subcommands();
        if !subcommands.is_empty() {
            let alone = run_with_variable(&command.words);
            let shown = [text(&alone.stdout), text(&alone.stderr)].concat();
            assert_eq!(alone.status.code(), Some(2), "{name}: {shown}");
            for word in subcommands {
                assert!(
                    shown.contains(&format!("  {word} ")),
                    "{name} does not list {word}: {shown}"
                );
            }
            assert_fits(&name, &shown);
        }
    }
}

/// Commands that print something of a store.
const PRINTS: [&[&str]; 9] = [
    &["app", "list"],
    &["app", "show", "news"],
    &["app", "secret", "list", "news"],
    &["app", "transport", "list", "news"],
    &["audit", "list"],
    &["dead", "list"],
    &["key", "list"],
    &["device", "gone", "news"],
    &["device", "export", "news"],
];

#[tokio::test]
async fn every_list_fits_80_columns_and_ends_quietly_when_its_reader_does() {
    let store = Store::new();
    let long = "n".repeat(20);
    for made in [
        &["key", "create"][..],
        &["app", "create", "news", "--rate-limit", "4000000000", "--pace", "4000000000"],
        &["app", "create", &long, "--max-devices", "4000000000"],
        &["app", "secret", "add", "news", &long, "--scope", "push,devices", "--expires", "90d"],
        &["device", "put", "news", "phone-1", "--country", "SG"],
    ] {
        let ran = store.run(made).await;
        assert!(ran.ok, "{made:?}: {}", ran.err);
    }
    for command in PRINTS {
        let words = [command, &["--data-dir", store.dir().to_str().unwrap()]].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let printed = run(&words);
        assert!(printed.status.success(), "{command:?}: {}", text(&printed.stderr));
        if !command.contains(&"export") {
            assert_fits(&format!("{command:?}"), text(&printed.stdout));
        }
        assert!(!printed.stdout.contains(&0x1b), "{command:?} has colours");

        let mut piped = Command::new("bash");
        piped.args(["-c", "set -o pipefail; \"$@\" | exec true", "bash"]);
        let piped = piped.arg(built("pushctl")).args(&words).output().unwrap();
        assert!(matches!(piped.status.code(), Some(0 | 141)), "{command:?}: {piped:?}");
        assert_eq!(text(&piped.stderr), "", "{command:?}");
    }
}

#[test]
fn the_limits_of_a_new_app_are_options_of_its_own_and_none_of_its_server() {
    let help = run(&["app", "create", "-h"].map(str::to_owned));
    let help = text(&help.stdout);
    let at = |what: &str| help.find(what).unwrap_or_else(|| panic!("no {what}: {help}"));
    assert!(at("--rate-limit") < at("\nServer:"), "{help}");
    assert!(at("\nServer:") < at("--server"), "{help}");
}
