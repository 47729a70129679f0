//! Warns of environment variables that are named like a setting and are none, such as a typo.
//!
//! One environment may serve several programs, as a compose file does. So the variables of all
//! programs are known in each of them: `variables.txt` lists them, and a test of `pushctl` compares the
//! list with the command lines. A name that is still unknown causes a warning and no error.

use clap::Command;

use crate::{terminal, values::nearest};

/// The beginning of every variable of a setting.
const PREFIX: &str = "PUSH_";
/// The variables of all programs, one a line.
pub const OF_ALL_PROGRAMS: &str = include_str!("variables.txt");
/// The prefix of the variables of tests, which the programs that they start inherit.
const OF_TESTS: [&str; 8] = [
    "PUSH_CHAOS_",
    "PUSH_FUZZ_",
    "PUSH_LIBFUZZER",
    "PUSH_MOVE_DEVICES",
    "PUSH_PLANTED",
    "PUSH_REMOVAL_SEED",
    "PUSH_SIM_",
    "PUSH_TEST_",
];
/// The most variables that are named.
const MOST: usize = 20;

/// Returns one warning for each of these variables that is a setting of no program. An empty
/// variable counts as unset and must be left out.
pub(super) fn warnings(command: &Command, variables: impl Iterator<Item = String>) -> Vec<String> {
    let mut own = Vec::new();
    add_variables(command, &mut own);
    let known = || OF_ALL_PROGRAMS.lines().chain(own.iter().map(|name| &**name));
    let mut unknown: Vec<String> = variables
        .filter(|name| name.starts_with(PREFIX) && !is_foreign(name))
        .filter(|name| known().all(|known| known != name))
        .collect();
    unknown.sort();
    unknown.truncate(MOST);
    unknown.iter().map(|name| warning(name, known())).collect()
}

/// Adds the variables of a command and of its subcommands.
pub fn add_variables(command: &Command, all: &mut Vec<String>) {
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    all.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    command.get_subcommands().for_each(|command| add_variables(command, all));
}

/// Returns true for a variable of tests, and for one that Kubernetes sets in every container of a
/// namespace with a service whose name begins with `push-`.
fn is_foreign(name: &str) -> bool {
    let begins_with_digit = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    OF_TESTS.iter().any(|own| name.starts_with(own))
        || name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.split("_PORT_").skip(1).any(begins_with_digit)
}

fn warning<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    // All of them begin alike, which says nothing about which one is meant.
    let of = |name: &'a str| name.strip_prefix(PREFIX);
    let meant = nearest(name.strip_prefix(PREFIX).unwrap_or(name), known.filter_map(of));
    let meant = meant.map(|known| format!("; the nearest one is {PREFIX}{known}"));
    let meant = meant.unwrap_or_default();
    format!("{} is no setting of any program{meant}", terminal::text(name))
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn warned(variables: &[&str]) -> Vec<String> {
        let command = Command::new("program").arg(Arg::new("new").long("new").env("PUSH_NEW"));
        let outer = Command::new("outer").subcommand(command);
        warnings(&outer, variables.iter().map(|&name| name.to_owned()))
    }

    #[test]
    fn a_variable_that_no_program_knows_is_named_with_the_nearest_one() {
        let warnings = warned(&["PUSH_XYZZY", "PUSH_LISTN", "PUSH_QUEUE_ULR"]);
        assert_eq!(
            warnings,
            [
                "PUSH_LISTN is no setting of any program; the nearest one is PUSH_LISTEN",
                "PUSH_QUEUE_ULR is no setting of any program; the nearest one is PUSH_QUEUE_URL",
                "PUSH_XYZZY is no setting of any program",
            ]
        );
    }

    #[test]
    fn a_variable_of_another_program_of_a_test_or_of_kubernetes_is_no_warning() {
        let known = ["PUSH_NEW", "PUSH_TASK_PREFETCH", "PUSH_TUNE", "PUSH_CONFIG", "PUSH_FROM"];
        let of_tests = ["PUSH_SIM_SEED", "PUSH_TEST_SERVERS"];
        let links = ["PUSH_INGEST_SERVICE_HOST", "PUSH_A_PORT", "PUSH_A_PORT_80_TCP_ADDR"];
        let others = ["LISTN", "PUSHED"];
        for names in [&known[..], &of_tests, &links, &others] {
            assert_eq!(warned(names), [""; 0], "{names:?}");
        }
    }

    #[test]
    fn many_unknown_variables_are_few_warnings_and_none_commands_a_terminal() {
        let many: Vec<String> = (0..100).map(|n| format!("PUSH_\u{1b}[2J{n}")).collect();
        let warnings = warnings(&Command::new("program"), many.into_iter());
        assert_eq!(warnings.len(), MOST);
        assert!(warnings.iter().all(|warning| !warning.contains('\u{1b}')), "{warnings:?}");
    }
}
