//! A program with settings of all kinds, and its file.

use std::{io::Write as _, path::PathBuf};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, parser::ValueSource};
use tempfile::NamedTempFile;

use super::*;
use crate::secret::SecretText;

#[derive(Debug, Parser)]
#[command(name = "program")]
struct Cli {
    #[arg(long, env = "PUSH_QUEUE_URL", global = true)]
    queue_url: Option<SecretText>,
    #[arg(long, env = "PUSH_QUEUE_URL_FILE", global = true)]
    queue_url_file: Option<PathBuf>,
    #[arg(long, env = "PUSH_BATCH", default_value = "1000")]
    batch: String,
    #[arg(long, env = "PUSH_IN_CLEAR", default_value = "off")]
    in_clear: String,
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    Work {
        #[arg(long, env = "PUSH_REST", default_value = "10m")]
        rest: String,
    },
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Reads the settings from this file, these arguments and this environment.
fn read(
    text: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<(clap::ArgMatches, Vec<String>), String> {
    let file = file(text);
    let path = file.path().to_str().unwrap();
    let arguments: Vec<OsString> =
        ["program", "--config", path].iter().chain(arguments).map(OsString::from).collect();
    let variable = |name: &str| {
        environment.iter().find(|(of, _)| *of == name).map(|(_, value)| OsString::from(value))
    };
    let command = with_flag(Cli::command());
    let (command, warnings) = apply(command, Given { arguments: &arguments, variable: &variable })?;
    Ok((command.try_get_matches_from(&arguments).map_err(|error| error.to_string())?, warnings))
}

fn cli(text: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Cli {
    Cli::from_arg_matches(&read(text, arguments, environment).unwrap().0).unwrap()
}

#[test]
fn a_value_of_the_file_goes_before_the_default_and_a_flag_before_the_file() {
    let text = "batch = 50\nin-clear = true\n";
    let read_cli = cli(text, &[], &[]);
    assert_eq!((read_cli.batch.as_str(), read_cli.in_clear.as_str()), ("50", "on"));
    assert_eq!(cli(text, &["--batch", "7"], &[]).batch, "7");
    assert_eq!(cli("", &[], &[]).batch, "1000");
}

#[test]
fn what_is_no_flag_is_a_default_for_clap() {
    let (matches, _) = read("batch = 50\n", &["--in-clear=on"], &[]).unwrap();
    assert_eq!(matches.value_source("batch"), Some(ValueSource::DefaultValue));
    assert_eq!(matches.value_source("in_clear"), Some(ValueSource::CommandLine));
}

#[test]
fn settings_of_all_commands_may_be_in_the_file_of_a_program() {
    let text = "queue-url = \"amqp://h\"\nrest = \"1m\"\n";
    let work = cli(text, &["work"], &[]);
    assert_eq!(work.queue_url.unwrap().expose(), "amqp://h");
    let Some(Sub::Work { rest }) = work.command else { panic!("the command") };
    assert_eq!(rest, "1m");
    let other = cli(text, &["work", "--queue-url", "amqp://other"], &[]);
    assert_eq!(other.queue_url.unwrap().expose(), "amqp://other");
}

#[test]
fn every_key_that_is_no_setting_is_named_with_its_line_and_the_nearest_one() {
    let error = read("# mine\nbatsh = 1\nqueue_url = \"x\"\nzzz = 1\njson = true\n", &[], &[]);
    let error = error.unwrap_err();
    for expected in [
        "line 2: \"batsh\" is no setting of program; the nearest one is batch",
        "line 3: \"queue_url\" is no setting of program; the nearest one is queue-url",
        "line 4: \"zzz\" is no setting of program",
        "line 5: \"json\" is no setting of program",
    ] {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_key_that_may_be_a_password_is_not_repeated() {
    for text in ["\"amqp://u:hunter2@h\" = 1\n", "[\"amqp://u:hunter2@h\"]\n"] {
        let error = read(text, &[], &[]).unwrap_err();
        assert!(error.contains("line 1: a key ") && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn an_error_names_some_of_many_wrong_lines() {
    let text: String = (0..5_000).map(|number| format!("zz{number} = 1\n")).collect();
    let error = read(&text, &[], &[]).unwrap_err();
    assert_eq!(error.matches("is no setting").count(), 20, "{error}");
}

#[test]
fn what_is_no_toml_is_named_with_its_line_and_without_what_it_holds() {
    for text in [
        "batch = 1\nqueue-url = amqp://u:hunter2@h\n",
        "batch = 1\nqueue-url = \"amqp://u:hunter2@h\n",
        "batch = 1\nqueue-url = [\"amqp://u:hunter2@h\"]\n",
        "batch = 1\nqueue-url = 0x1f\n",
    ] {
        let error = read(text, &[], &[]).unwrap_err();
        assert!(error.contains("line 2: ") && !error.contains("hunter2"), "{error}");
    }
    assert!(read("batch = 1\nbatch = 2\n", &[], &[]).unwrap_err().contains("line 2: "));
}

#[test]
fn the_file_of_a_setting_replaces_its_value_if_it_is_given_besides_the_file() {
    let text = "queue-url = \"amqp://u:p@h\"\n";
    let by_flag = cli(text, &["--queue-url-file", "/run/secret"], &[]);
    assert!(by_flag.queue_url.is_none() && by_flag.queue_url_file.is_some());
    let (matches, _) = read(text, &[], &[("PUSH_QUEUE_URL_FILE", "/run/secret")]).unwrap();
    assert!(matches.get_one::<SecretText>("queue_url").is_none());
    let by_file = cli("queue-url-file = \"/run/secret\"\n", &["--queue-url=amqp://h"], &[]);
    assert!(by_file.queue_url.is_some() && by_file.queue_url_file.is_none());
}

#[cfg(unix)]
#[test]
fn a_password_in_a_file_that_others_can_read_is_a_warning_without_the_password() {
    use std::os::unix::fs::PermissionsExt as _;

    let warnings = |text: &str, mode: u32| {
        let file = file(text);
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let arguments = ["program".into(), "--config".into(), file.path().into()];
        let given = Given { arguments: &arguments, variable: &|_| None };
        apply(with_flag(Cli::command()), given).unwrap().1
    };
    let secret = "queue-url = \"amqp://u:hunter2@h\"\n";
    assert_eq!(warnings(secret, 0o600), [""; 0]);
    let found = warnings(secret, 0o640);
    assert!(found[0].contains("queue-url holds a password"), "{found:?}");
    assert!(found[0].contains("chmod 600") && !found[0].contains("hunter2"), "{found:?}");
    assert_eq!(warnings("queue-url = \"amqp://h\"\nbatch = 1\n", 0o644), [""; 0]);
}

#[test]
fn the_variable_names_the_file_where_no_flag_does() {
    let file = file("batch = 50\n");
    let variable = |name: &str| (name == VARIABLE).then(|| file.path().into());
    let arguments = ["program".into()];
    let given = Given { arguments: &arguments, variable: &variable };
    let (command, _) = apply(with_flag(Cli::command()), given).unwrap();
    let matches = command.try_get_matches_from(["program"]).unwrap();
    assert_eq!(matches.get_one::<String>("batch").unwrap(), "50");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let arguments = ["program".into(), "--config=/nowhere.toml".into()];
    let given = Given { arguments: &arguments, variable: &|_| None };
    let error = apply(with_flag(Cli::command()), given).unwrap_err();
    assert!(error.starts_with("--config /nowhere.toml: cannot be read: "), "{error}");
}

#[test]
#[cfg(unix)]
fn a_named_pipe_is_refused_without_waiting_for_a_writer() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("settings.toml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success(), "mkfifo");
    let arguments = ["program".into(), "--config".into(), pipe.into_os_string()];
    let given = Given { arguments: &arguments, variable: &|_| None };
    let error = apply(with_flag(Cli::command()), given).unwrap_err();
    assert!(error.ends_with("cannot be read: it is not a regular file"), "{error}");
}

#[test]
fn the_help_shows_no_value_of_the_file() {
    let error = read("queue-url = \"amqp://u:hunter2@h\"\n", &["--help"], &[]).unwrap_err();
    assert!(error.contains("--queue-url") && !error.contains("hunter2"), "{error}");
}
