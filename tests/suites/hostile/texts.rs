//! No program prints a secret: not in a help, not in an error, not in a log. The tests run over all
//! settings that the programs list, so that a new one is covered. And text from outside commands
//! no operator's terminal.

use std::{
    collections::BTreeSet,
    fs,
    process::{Output, Stdio},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use push_tests::{
    free_port,
    help::{CommandHelp, commands},
    mqtt_url,
    service::built,
    stack::{APP, Servers, Stack},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// Deadline for a program to refuse its settings.
const DEADLINE: Duration = Duration::from_secs(30);
/// Programs that run at once.
const AT_ONCE: usize = 4;

const MARKER: &str = "hunter2hunter2";

/// Mistaken values of a setting that should hold a URL with a password.
const SECRETS: [&str; 6] = [
    "amqp://u:hunter2hunter2/@h",
    "redis://:hunter2hunter2",
    "mqtt://u:hunter2hunter2@h/topic",
    "kafka://u:hunter2hunter2@h:x",
    "u:hunter2hunter2@h",
    "hunter2hunter2",
];

/// Runs a program, with these variables of ours and no others, until it ends.
async fn run(command: &CommandHelp, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let folder = TempDir::new().unwrap();
    let mut process = tokio::process::Command::new(built(command.program));
    process.args(&command.words).args(arguments).current_dir(folder.path());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PUSH_")) {
        process.env_remove(name);
    }
    process.envs(environment.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, process.output()).await;
    let name = command.name();
    output.unwrap_or_else(|_| panic!("{name} {environment:?} does not end")).unwrap()
}

fn printed(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// Each setting once for each program and command that reads it; a setting of all commands of
/// `pushctl` once.
fn settings() -> Vec<(CommandHelp, String)> {
    let commands = commands();
    let root = commands.iter().find(|c| c.name() == "pushctl").unwrap().variables();
    let mut all = Vec::new();
    for command in commands.into_iter().filter(|command| command.subcommands().is_empty()) {
        let is_first = command.name() == "pushctl doctor";
        let own = command.variables().into_iter();
        let own =
            own.filter(|name| command.program != "pushctl" || is_first || !root.contains(name));
        all.extend(own.map(|name| (command.clone(), name)));
    }
    all
}

/// The settings that may hold a secret, which are those that have a file beside them.
fn secrets() -> BTreeSet<String> {
    let names: BTreeSet<String> = settings().into_iter().map(|(_, name)| name).collect();
    let of_files = names.iter().filter_map(|name| name.strip_suffix("_FILE"));
    of_files.filter(|name| names.contains(*name)).map(str::to_owned).collect()
}

/// A setting that is wrong, so that a program ends even if the tested setting is right.
fn wrong_besides(name: &str) -> (&'static str, &'static str) {
    if name == "PUSH_NAMESPACE" {
        ("PUSH_LEDGER_RETENTION", "5")
    } else {
        ("PUSH_NAMESPACE", "a b")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_help_shows_what_the_environment_holds() {
    for command in commands() {
        let variables = command.variables();
        let environment: Vec<_> = variables.iter().map(|name| (name.as_str(), MARKER)).collect();
        for flag in ["--help", "-h"] {
            let output = run(&command, &[flag], &environment).await;
            assert!(output.status.success(), "{}: {}", command.name(), printed(&output));
            assert!(!printed(&output).contains(MARKER), "{}", printed(&output));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_shows_the_secret_that_a_wrong_setting_holds() {
    let secrets = secrets();
    let settings = settings();
    assert!(settings.len() > 100 && secrets.len() >= 4, "{} {secrets:?}", settings.len());
    let mut runs = Vec::new();
    for (command, name) in &settings {
        for value in SECRETS {
            // A setting that holds no URL may repeat a value that looks like none.
            if value != MARKER || secrets.contains(name) {
                runs.push((command, name.as_str(), value));
            }
        }
    }
    let secrets = &secrets;
    let one = async |(command, name, value): (&CommandHelp, &str, &str)| {
        let arguments = command.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = run(command, &arguments, &[(name, value), wrong_besides(name)]).await;
        let text = printed(&output);
        assert!(!output.status.success(), "{} {name}={value}: {text}", command.name());
        assert!(!text.contains(MARKER), "{} {name}={value}: {text}", command.name());
        text.contains(name) || !secrets.contains(name)
    };
    let named = stream::iter(runs).map(one).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    let unnamed = named.iter().filter(|named| !**named).count();
    // An MQTT URL is checked after the settings of the engines.
    assert!(unnamed * 4 < named.len(), "{unnamed} of {} errors name no setting", named.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_shows_what_the_file_of_a_setting_holds() {
    let folder = TempDir::new().unwrap();
    let secrets = secrets();
    let mut seen = 0;
    for (command, name) in settings() {
        let variable = format!("{name}_FILE");
        if !secrets.contains(&name) {
            continue;
        }
        for (number, value) in SECRETS.iter().enumerate() {
            let file = folder.path().join(format!("secret-{number}"));
            fs::write(&file, format!("{value}\n")).unwrap();
            let file = file.to_str().unwrap();
            let arguments = command.arguments();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let both = [(name.as_str(), MARKER), (&variable, file), wrong_besides(&name)];
            for environment in [&both[1..], &both[..]] {
                let text = printed(&run(&command, &arguments, environment).await);
                assert!(!text.contains(MARKER), "{} {environment:?}: {text}", command.name());
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "only {seen} runs");
}

#[test]
fn every_setting_that_may_hold_a_secret_can_be_read_from_a_file() {
    let secrets = secrets();
    for (command, name) in settings() {
        let may_hold_one = ["_URL", "_SECRET", "_PASSWORD", "_TOKEN"];
        // A URL with a user name or a password is refused there.
        let holds_none = [
            "PUSH_FCM_URL",
            "PUSH_APNS_URL",
            "PUSH_MQTT_DEVICE_URL",
            "PUSH_MQTT_WS_DEVICE_URL",
            "PUSH_ADMIN_PUBLIC_URL",
        ];
        if !holds_none.contains(&name.as_str())
            && may_hold_one.iter().any(|end| name.ends_with(end))
        {
            assert!(secrets.contains(&name), "{}: there is no {name}_FILE", command.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_is_named_without_its_password() {
    let nothing = free_port().unwrap().address();
    let amqp = format!("amqp://u:{MARKER}@{nothing}/%2f");
    let redis = format!("redis://:{MARKER}@{nothing}");
    let cluster = format!("redis-cluster://u:{MARKER}@{nothing},{nothing}");
    let mqtt = format!("mqtt://u:{MARKER}@{nothing}");
    for command in commands() {
        let arguments: &[&str] = match command.name().as_str() {
            "ingest" | "fanout-worker" => {
                &["--ops-listen", "127.0.0.1:0", "--log", "debug", "--tune", "start-deadline=1s"]
            }
            "pushctl doctor" | "pushctl dead list" | "pushctl app list" => &[],
            "pushctl device listen" => &["a", "b"],
            _ => continue,
        };
        for index in [&redis, &cluster] {
            let environment = [
                ("PUSH_QUEUE_URL", amqp.as_str()),
                ("PUSH_INDEX_URL", index),
                ("PUSH_MQTT_URL", &mqtt),
                ("PUSH_LISTEN", "127.0.0.1:0"),
            ];
            let output = run(&command, arguments, &environment).await;
            let text = printed(&output);
            assert!(!output.status.success() && text.contains(&nothing), "{text}");
            assert!(!text.contains(MARKER), "{}: {text}", command.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_cannot_command_the_terminal_that_shows_it() {
    // Clears the screen with one C1 character, and reverses the direction of what follows.
    const TITLE: &str = "harmless\u{9b}2J\u{202e}txt";
    let stack = Stack::start(Servers::shared()).await;
    let _worker = stack.worker(&[]).await;
    stack.pushctl(&["device", "put", APP, "phone"]).await;
    for form in [&["--count", "1"][..], &["--count", "1", "--json"]] {
        let mut listen = tokio::process::Command::new(built("pushctl"))
            .args(["device", "listen", APP, "phone", "--mqtt-url", &mqtt_url()])
            .args(form)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut notes = BufReader::new(listen.stderr.take().unwrap()).lines();
        let ready = tokio::time::timeout(DEADLINE, notes.next_line()).await.unwrap().unwrap();
        assert!(ready.as_ref().is_some_and(|line| line.contains("listens on")), "{ready:?}");
        let push = json!({
            "type": 1, "time_to_live": 60, "condition": {"type": 0},
            "notification": {"title": TITLE, "desc": "d", "open_type": 1}
        });
        stack.push(&push).await;
        let output = tokio::time::timeout(DEADLINE, listen.wait_with_output()).await;
        let text = String::from_utf8(output.unwrap().unwrap().stdout).unwrap();
        assert!(text.contains("harmless") && text.contains("2J"), "it is shown: {text:?}");
        let commands = text.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}');
        assert!(!commands && text.lines().count() == 1, "{text:?}");
    }
}
