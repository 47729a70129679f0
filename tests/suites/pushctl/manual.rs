//! The manual and the completions for shells, which `pushctl` writes for all programs.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use push_tests::{
    help,
    process::installed,
    service::{pushctl_output, pushctl_output_with},
};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAMS: [&str; 3] = ["pushctl", "ingest", "fanout-worker"];

async fn printed(command: &[&str]) -> String {
    let output = pushctl_output(command).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn complaints(program: &str, flags: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(flags).arg(file).output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {}: {complaints}", file.display());
    complaints
}

#[tokio::test]
async fn the_manual_has_a_page_for_each_command_with_all_of_its_settings() {
    let folder = TempDir::new().unwrap();
    let pages = folder.path().join("man");
    let written = printed(&["man", pages.to_str().unwrap(), "--json"]).await;
    let written: Vec<String> = serde_json::from_str(&written).unwrap();
    let written: BTreeSet<_> = written.iter().map(|path| Path::new(path).to_owned()).collect();
    let commands = help::commands();
    assert!(commands.len() > 20);
    let expected: BTreeSet<_> =
        commands.iter().map(|c| pages.join(format!("{}.1", c.name().replace(' ', "-")))).collect();
    assert_eq!(written, expected);
    for command in &commands {
        let page = pages.join(format!("{}.1", command.name().replace(' ', "-")));
        let text = fs::read_to_string(&page).unwrap();
        for variable in command.variables() {
            assert!(
                text.contains(&format!("\\fB{variable}\\fR")),
                "{}: {variable}",
                page.display()
            );
        }
        assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
        // The program with which `man` shows pages, if it is installed.
        if installed("groff").is_some() {
            let flags = ["-k", "-man", "-Tutf8", "-ww", "-rLL=160n", "-z"];
            assert_eq!(complaints("groff", &flags, &page), "", "{}", page.display());
        }
    }
}

#[tokio::test]
async fn shells_accept_the_completions_of_every_program() {
    let folder = TempDir::new().unwrap();
    let mut scripts = Vec::new();
    for program in PROGRAMS {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let script = printed(&["completions", shell, "--program", program]).await;
            assert!(script.contains("namespace"), "{shell}: {script}");
            let file = folder.path().join(format!("{program}.{shell}"));
            fs::write(&file, &script).unwrap();
            if matches!(shell, "bash" | "zsh" | "fish") && installed(shell).is_some() {
                assert_eq!(complaints(shell, &["-n"], &file), "");
            }
            scripts.push(script);
        }
    }
    assert_eq!(scripts.iter().collect::<BTreeSet<_>>().len(), scripts.len());
    let json: Value =
        serde_json::from_str(&printed(&["completions", "bash", "--json"]).await).unwrap();
    assert_eq!((&json["program"], &json["shell"]), (&"pushctl".into(), &"bash".into()));
    assert_eq!(json["script"].as_str().map(str::trim_end), Some(scripts[0].trim_end()));
}

#[tokio::test]
async fn bash_completes_commands_and_flags() {
    const ASK: &str = r#"
        source /dev/stdin
        ask() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _pushctl pushctl "${@: -1}" "${@: -2:1}"
            echo "${COMPREPLY[@]}"
        }
        ask pushctl stand
        ask pushctl device im
        ask pushctl app create --rate
        ask pushctl dead ""
    "#;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("script");
    fs::write(&file, printed(&["completions", "bash"]).await).unwrap();
    let output = Command::new("bash")
        .args(["--norc", "-c", ASK])
        .stdin(fs::File::open(&file).unwrap())
        .output()
        .unwrap();
    let answers = String::from_utf8_lossy(&output.stdout);
    assert!(
        answers.starts_with("standalone\nimport\n--rate-limit\nlist replay drop help -"),
        "{output:?}"
    );
}

#[tokio::test]
async fn wrong_settings_of_an_installation_keep_nothing_from_being_completed() {
    let wrong = [("PUSH_QUEUE_URL", "nonsense")];
    let output = pushctl_output_with(&["completions", "bash"], &wrong).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
