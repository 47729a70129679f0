//! Tells the programs which source they are built from, for `--version` and `push_build_info`.
//!
//! The commit is that of the first of these which has one:
//! 1. `SOURCE_COMMIT`, for builds that see no repository, as in an image;
//! 2. git, for an optimised build. A development build does not ask: all programs and tests would be
//!    compiled again after each commit;
//! 3. `archive-commit`, which `git archive` fills in, for an archive of the source.
//!
//! Nothing else of the machine or of the time goes into it, so a second build gives the same bytes.
//! `SOURCE_DATE_EPOCH` overrides the date, which is that of the commit.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]

use std::{env, fs, path::Path, process::Command};

/// The folders that are compiled into the programs. An uncommitted change there counts as a
/// modification, and is what makes an optimised build run this script again.
const COMPILED: [&str; 10] = [
    "../../Cargo.toml",
    "../../Cargo.lock",
    "../../shared",
    "../../ingest",
    "../../fanout-worker",
    "../../transports",
    "../../broker",
    "../../operator",
    "../../console",
    "../../pushctl",
];

/// The file that `git archive` fills in.
const ARCHIVE_COMMIT: &str = "archive-commit";

/// Marks a commit that is not all that was built.
const MODIFIED: &str = "-modified";

#[derive(Default)]
struct Source {
    commit: Option<String>,
    is_modified: bool,
    /// Since 1970.
    seconds: Option<u64>,
}

fn main() -> Result<(), String> {
    for file in ["build.rs", ARCHIVE_COMMIT] {
        println!("cargo::rerun-if-changed={file}");
    }
    let is_optimised = variable("PROFILE").as_deref() == Some("release");
    let given = given()?;
    let mut source = match given {
        Some(given) => given,
        None => is_optimised.then(of_git).flatten().or_else(of_archive).unwrap_or_default(),
    };
    if let Some(seconds) = variable("SOURCE_DATE_EPOCH") {
        let seconds =
            seconds.parse().map_err(|_| "SOURCE_DATE_EPOCH must be seconds since 1970")?;
        source.seconds = Some(seconds);
    }
    let date = source.seconds.map(date).unwrap_or_default();
    let name = match &source.commit {
        Some(commit) => {
            let (short, mark) = (&commit[..commit.len().min(12)], mark(&source));
            format!("{short}{mark} {date}")
        }
        None if is_optimised => format!("unknown commit {date}"),
        None => format!("development build {date}"),
    };
    let commit = source.commit.as_deref().unwrap_or("unknown");
    let modified = match &source {
        Source { commit: None, .. } => "unknown",
        Source { is_modified: true, .. } => "yes",
        Source { is_modified: false, .. } => "no",
    };
    tell("NAME", name.trim_end());
    tell("COMMIT", commit);
    tell("REVISION", &format!("{commit}{}", mark(&source)));
    tell("MODIFIED", modified);
    tell("DATE", &date);
    tell("RUSTC", rustc().as_deref().unwrap_or("unknown"));
    tell("TARGET", variable("TARGET").as_deref().unwrap_or("unknown"));
    tell("OPTIMISATION", variable("OPT_LEVEL").as_deref().unwrap_or("unknown"));
    Ok(())
}

/// Reads the environment. Fails if its text is no commit: a wrong commit is worse than none.
fn given() -> Result<Option<Source>, String> {
    let Some(text) = variable("SOURCE_COMMIT") else { return Ok(None) };
    let (commit, is_modified) = match text.strip_suffix(MODIFIED) {
        Some(commit) => (commit, true),
        None => (text.as_str(), false),
    };
    if !is_commit(commit) {
        return Err(format!("SOURCE_COMMIT must be the hash of a commit, also with {MODIFIED}"));
    }
    Ok(Some(Source { commit: Some(commit.to_owned()), is_modified, seconds: None }))
}

/// Asks git, if this file belongs to its repository. A repository that merely holds the folder of an
/// unpacked archive knows nothing about it.
fn of_git() -> Option<Source> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let head = git(&["show", "--no-patch", "--format=%H %ct", "HEAD"])?;
    let (commit, seconds) = head.split_once(' ')?;
    // The log of HEAD grows with each commit, checkout and reset.
    for file in ["HEAD", "logs/HEAD"] {
        let file = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    // A missing file would make cargo run this script each time.
    for path in COMPILED.iter().filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    // Without the locks it changes nothing in the repository, which others may be using.
    let arguments = ["--no-optional-locks", "status", "--porcelain", "--"];
    let changes = git(&[&arguments[..], &COMPILED].concat())?;
    Some(Source {
        commit: Some(commit.to_owned()),
        is_modified: !changes.is_empty(),
        seconds: seconds.parse().ok(),
    })
}

/// Reads the commit and its time as `git archive` wrote them.
fn of_archive() -> Option<Source> {
    let text = fs::read_to_string(ARCHIVE_COMMIT).ok()?;
    let (commit, seconds) = text.trim().split_once(' ')?;
    let seconds = seconds.parse().ok();
    is_commit(commit).then(|| Source {
        commit: Some(commit.to_owned()),
        seconds,
        ..Source::default()
    })
}

fn is_commit(text: &str) -> bool {
    let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    (7..=64).contains(&text.len()) && text.chars().all(is_hex)
}

fn mark(source: &Source) -> &'static str {
    if source.is_modified { MODIFIED } else { "" }
}

/// The day of a time, in the Gregorian calendar: `2026-11-25`. A year is taken to begin in March, so
/// that the day which some years have more is the last of them.
fn date(seconds: u64) -> String {
    const DAYS_TO_1970: u64 = 719_468; // from 0000-03-01
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = seconds / 86_400 + DAYS_TO_1970;
    let (cycle, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153; // 0 is March
    let day = day - (153 * month + 2) / 5 + 1;
    let year = cycle * 400 + year + u64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    format!("{year:04}-{month:02}-{day:02}")
}

/// `1.95.0 (59807616e 2026-04-14)`.
fn rustc() -> Option<String> {
    let text = output(Command::new(env::var_os("RUSTC")?).arg("--version"))?;
    Some(text.strip_prefix("rustc ").unwrap_or(&text).to_owned())
}

fn git(arguments: &[&str]) -> Option<String> {
    output(Command::new("git").args(arguments))
}

/// Returns the output of a command; none if it fails.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// A variable of the environment that is not empty.
fn variable(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn tell(name: &str, value: &str) {
    println!("cargo::rustc-env=PUSH_BUILD_{name}={value}");
}
