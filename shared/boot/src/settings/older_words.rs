//! Former names of settings. A program refuses to start with a former name, and its error gives the
//! present one.

use super::{config_file::Given, variable};

/// The former names, as flags without dashes, each with the name that replaced it.
const RENAMED: [(&str, &str); 5] = [
    ("strands", "partitions"),
    ("strand-min-slots", "tune partition-min-slots="),
    ("turn", "tune run-time="),
    ("hold", "tune longest-hold="),
    ("mqtt-patience", "tune mqtt-offline-timeout="),
];

/// Returns the name that replaced a former one.
pub(crate) fn new_word(name: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| *new)
}

/// Returns one text for each former name among flags and variables.
pub(crate) fn given(given: Given<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for (old, new) in RENAMED {
        let flag = format!("--{old}");
        if given.flag(old).is_some() {
            problems.push(format!("{flag} is now --{new}"));
        }
        let name = variable(&flag);
        if given.variable(&name).is_some() {
            let new = match new.split_once(' ') {
                Some((_, key)) => format!("PUSH_TUNE={key}"),
                None => variable(new),
            };
            problems.push(format!("{name} is now {new}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn an_old_name_is_told_the_new_one_as_a_flag_and_as_a_variable() {
        let arguments = ["worker", "--turn=1s", "--strands", "4"].map(OsString::from);
        let variable =
            |name: &str| (name == "PUSH_STRANDS" || name == "PUSH_HOLD").then(|| "1".into());
        let problems = super::given(Given { arguments: &arguments, variable: &variable });
        assert_eq!(
            problems,
            [
                "--strands is now --partitions",
                "PUSH_STRANDS is now PUSH_PARTITIONS",
                "--turn is now --tune run-time=",
                "PUSH_HOLD is now PUSH_TUNE=longest-hold=",
            ]
        );
        let none = Given { arguments: &[], variable: &|_| Some(OsString::new()) };
        assert!(super::given(none).is_empty(), "an empty variable counts as unset");
    }
}
