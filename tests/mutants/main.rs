//! `mutants [--short] [NAME]...`: a test of the tests. It breaks the service on purpose, in one way
//! after the other, and each time runs the test that must fail.
//!
//! A test that passes shows little if it would also pass without the code that it tests. So
//! `faults/*.toml` lists *planted faults*: each is an edit of the source, with the test that must
//! catch it, at the lowest level that can (unit test, simulation, suite). They are about ownership,
//! saving, recall, expiry, the queue, isolation and credentials; `cargo mutants` is for the rest
//! (CONTRIBUTING.md). `--short` leaves out those that need real servers; a
//! NAME (or a part of one) picks faults.
//!
//! - `list`: the records, and what makes one wrong
//! - `planting`: a copy of the tracked files with all faults in it, each inert until chosen
//! - `building`: one build of that copy for all faults
//! - `trial`: one run of one test, and its result
//!
//! A fault is caught if its test fails by an assertion. A fault that does not compile, that ends
//! the test's process, or with which the test runs into its time limit is an error of the list; so
//! is an edit whose text does not occur exactly once in the source.

mod building;
mod list;
mod planting;
mod trial;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use futures::{StreamExt as _, TryStreamExt as _, future, stream};

use self::{
    building::{Programs, build},
    list::{Fault, Test},
    trial::{Ended, run},
};

/// Why the run failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("usage: mutants [--short] [NAME]...")]
    Usage,
    #[error("no planted fault has such a name")]
    NoSuchName,
    #[error("{path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
    #[error("{0}")]
    Program(String),
    #[error("{0}")]
    List(String),
    #[error("the copy with the planted faults can't be built:\n{0}")]
    Build(String),
    #[error("without a planted fault, {test} ends with: {end}")]
    Baseline { test: Test, end: String },
    #[error("{0} planted faults are not caught: {1}")]
    Survived(usize, String),
}

impl Failure {
    fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }
}

/// The command line.
#[derive(Debug, Default)]
struct Choice {
    short: bool,
    names: Vec<String>,
}

impl Choice {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut choice = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--short" => choice.short = true,
                _ if argument.starts_with('-') => return Err(Failure::Usage),
                _ => choice.names.push(argument),
            }
        }
        Ok(choice)
    }

    fn takes(&self, fault: &Fault) -> bool {
        let named = self.names.is_empty() || self.names.iter().any(|n| fault.name.contains(n));
        named && !(self.short && fault.caught_by.needs_servers())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match mutants().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("mutants: {failure}"));
            ExitCode::FAILURE
        }
    }
}

async fn mutants() -> Result<(), Failure> {
    let begun = Instant::now();
    let choice = Choice::read(std::env::args().skip(1))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let all = list::read(&root.join("tests/mutants/faults"))?;
    let chosen: Vec<&Fault> = all.iter().filter(|fault| choice.takes(fault)).collect();
    if chosen.is_empty() {
        return Err(Failure::NoSuchName);
    }
    let target = target_folder()?;
    let tree = target.join("mutants/tree");
    // All faults are planted, whichever are chosen, so that each run finds records that are out of
    // date.
    planting::plant(root, &tree, &all).await?;
    let tests: BTreeMap<&Test, ()> = chosen.iter().map(|fault| (&fault.caught_by, ())).collect();
    let programs = build(&tree, &target, tests.keys().copied()).await?;
    say(&format!("built with {} faults after {:.0?}", all.len(), begun.elapsed()));
    // Tests with servers run one after the other, as their waits have deadlines.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = if tests.keys().any(|test| test.needs_servers()) { 1 } else { cores };
    baseline(&programs, tests.keys().copied(), at_once).await?;
    say(&format!("passed without a fault after {:.0?}", begun.elapsed()));
    let survived = try_each(&programs, &chosen, at_once).await?;
    say(&format!("{} faults planted in {:.0?}", chosen.len(), begun.elapsed()));
    if survived.is_empty() {
        return Ok(());
    }
    Err(Failure::Survived(survived.len(), survived.join(", ")))
}

/// The target folder in which this program, and so the service's tests, are built.
fn target_folder() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::Program(error.to_string()))?;
    let folder = own.ancestors().nth(2);
    folder.map(Path::to_owned).ok_or_else(|| Failure::Program("no target folder".to_owned()))
}

/// Checks that each test passes while no fault is chosen.
async fn baseline(
    programs: &Programs,
    tests: impl Iterator<Item = &Test>,
    at_once: usize,
) -> Result<(), Failure> {
    let runs = tests.map(|test| async move {
        match run(programs, test, None).await? {
            Ended::Passed => Ok(()),
            other => Err(Failure::Baseline { test: test.clone(), end: other.to_string() }),
        }
    });
    stream::iter(runs).buffer_unordered(at_once).try_collect().await
}

/// Chooses each fault in a run of its own; returns the names of those that were not caught.
async fn try_each(
    programs: &Programs,
    faults: &[&Fault],
    at_once: usize,
) -> Result<Vec<String>, Failure> {
    let runs = faults.iter().map(|fault| async {
        let Fault { name, says, caught_by, .. } = fault;
        let begun = Instant::now();
        let ended = run(programs, caught_by, Some(name)).await?;
        let took = begun.elapsed().as_secs_f64();
        Ok(match &ended {
            Ended::Failed(why) => {
                let level = caught_by.level();
                say(&format!("caught by {level}: {name}  {took:.1} s  ({why})"));
                None
            }
            other => {
                say(&format!("NOT CAUGHT by {caught_by}: {name}  {took:.1} s  {other}\n  {says}"));
                Some(name.clone())
            }
        })
    });
    let runs = stream::iter(runs).buffer_unordered(at_once);
    runs.try_filter_map(|survived| future::ready(Ok(survived))).try_collect().await
}

#[allow(clippy::print_stderr, reason = "a command-line tool prints what it found")]
fn say(text: &str) {
    eprintln!("{text}");
}
