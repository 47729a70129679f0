//! One run of one test, with a planted fault or without.

use std::{fmt, process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};

use crate::{
    Failure,
    building::{Program, Programs},
    list::Test,
    planting::CHOSEN,
};

/// Deadlines of unit tests and of others: nextest gives those as long or longer
/// (`.config/nextest.toml`).
const UNIT_LIMIT: Duration = Duration::from_mins(1);
const LIMIT: Duration = Duration::from_mins(5);
/// Variables that would make the simulation run something else.
const OTHER_RUNS: [&str; 7] = [
    "PUSH_SIM_SEED",
    "PUSH_SIM_REPLAY",
    "PUSH_SIM_WORLD",
    "PUSH_SIM_DEPTH",
    "PUSH_SIM_FAULTS",
    "PUSH_SIM_TRACE",
    "PUSH_SIM_WITHOUT",
];
/// The tests of the simulation.
const EXHAUSTIVE: &str = "contract_holds_in_every_schedule_of_small_worlds";
const RANDOM: &str = "contract_holds_in_random_schedules";
/// Random schedules of a run: the first ones of those that the simulation runs by default. A fault
/// that these catch is caught by default too.
const SCHEDULES: &str = "2000";
/// The exit code of a test program whose tests failed.
const TESTS_FAILED: i32 = 101;
/// The longest reason that is printed, in characters.
const LONGEST: usize = 100;

/// The end of a run.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Tests ran, and all passed.
    Passed,
    /// Tests failed, with the reason.
    Failed(String),
    /// No test has such a name.
    NothingRan,
    /// It took longer than its limit. That does not count as caught: a test that hangs does not
    /// show what is wrong.
    TimedOut(Duration),
    /// The test program ended otherwise, with its standard error.
    Died(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("all tests passed"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::NothingRan => f.write_str("no test has such a name"),
            Self::TimedOut(limit) => write!(f, "took longer than {limit:.0?}"),
            Self::Died(how) => write!(f, "the test program ended by itself: {how}"),
        }
    }
}

/// Runs a test with this fault.
pub(crate) async fn run(
    programs: &Programs,
    test: &Test,
    fault: Option<&str>,
) -> Result<Ended, Failure> {
    let program = programs.of(test)?;
    let (arguments, limit) = match test {
        Test::Unit { filter, .. } => (vec![filter.clone()], UNIT_LIMIT),
        Test::Exhaustive => (vec![EXHAUSTIVE.to_owned()], LIMIT),
        Test::Random => (vec![RANDOM.to_owned()], LIMIT),
        Test::Suite { name, filter } => (of_suite(program, name, filter).await?, LIMIT),
    };
    if arguments.is_empty() {
        return Ok(Ended::NothingRan);
    }
    let mut command = Command::new(&program.file);
    for variable in OTHER_RUNS {
        command.env_remove(variable);
    }
    command
        .args(arguments)
        .current_dir(&program.folder)
        .env(CHOSEN, fault.unwrap_or_default())
        .env("PUSH_SIM_SCHEDULES", SCHEDULES)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let Ok(output) = timeout(limit, command.output()).await else {
        return Ok(Ended::TimedOut(limit));
    };
    let output = output.map_err(|error| Failure::file(&program.file, error))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let ran = !said.contains("running 0 tests");
    Ok(match output.status.code() {
        Some(0) if ran => Ended::Passed,
        Some(0) => Ended::NothingRan,
        Some(TESTS_FAILED) if said.contains("test result: FAILED") => Ended::Failed(reason(&said)),
        _ => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Ended::Died(format!("{}: {errors}", output.status))
        }
    })
}

/// Returns the arguments that run the tests of a suite whose names contain the filter; none if there is no
/// such test. A filter of the runner would find tests of other suites too.
async fn of_suite(program: &Program, suite: &str, filter: &str) -> Result<Vec<String>, Failure> {
    let listed = Command::new(&program.file).args([filter, "--list"]).output().await;
    let listed = listed.map_err(|error| Failure::file(&program.file, error))?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let names = names.filter(|name| name.split("::").next() == Some(suite)).map(str::to_owned);
    let names: Vec<String> = names.collect();
    Ok(if names.is_empty() { names } else { [vec!["--exact".to_owned()], names].concat() })
}

/// The rule of the contract that the simulation reports as broken, or the names of the tests that
/// failed.
fn reason(said: &str) -> String {
    let after_schedule = said.split("PUSH_SIM_").nth(1);
    let rule = after_schedule.and_then(|text| {
        let mut words = text.split_whitespace().skip(1);
        words.find_map(|word| word.strip_suffix(':').filter(|word| is_rule(word)))
    });
    if let Some(rule) = rule {
        return rule.to_owned();
    }
    let failed =
        said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let names: Vec<&str> = failed.map(|name| name.rsplit("::").next().unwrap_or(name)).collect();
    names.join(", ").chars().take(LONGEST).collect()
}

/// Returns true if a word is the name of a rule, which is written like a type's.
fn is_rule(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().all(char::is_alphabetic)
}
