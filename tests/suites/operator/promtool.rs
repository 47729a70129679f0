//! `promtool check metrics`, which says where a metric is not named or described as Prometheus advises.
//!
//! It reads the classic text format, and the programs publish OpenMetrics, so their text is turned into
//! that format first.

use std::{
    collections::BTreeSet,
    io::Write as _,
    process::{Command, Stdio},
};

use push_tests::process::installed;

/// The same metrics in the classic format. There the help text and the type of a counter have its
/// whole name, with `_total`, and neither units nor the end of the text are stated.
fn classic(open_metrics: &str) -> String {
    let counters: BTreeSet<&str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut classic = String::new();
    for line in open_metrics.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "UNIT", ..] | ["#", "EOF"] => {}
            ["#", what @ ("HELP" | "TYPE"), name, rest] if counters.contains(name) => {
                classic += &format!("# {what} {name}_total {rest}\n");
            }
            _ => classic += &format!("{line}\n"),
        }
    }
    classic
}

/// Runs promtool on the metrics of a program, as it publishes them.
pub(super) fn check(open_metrics: &str) -> Result<(), String> {
    let promtool = installed("promtool").expect("promtool: ./tests/run installs Prometheus");
    let mut promtool = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(classic(open_metrics).as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let says = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat();
    if output.status.success() { Ok(()) } else { Err(says) }
}

#[test]
fn promtool_notices_a_unit_and_a_missing_help_text_in_what_a_program_could_publish() {
    let page = "# HELP waits Waits.\n# TYPE waits counter\nwaits_total 1\n\
                # HELP age_seconds Age.\n# TYPE age_seconds gauge\n# UNIT age_seconds seconds\n\
                age_seconds 1\n# EOF\n";
    check(page).unwrap();
    let minutes = page.replace("seconds", "minutes");
    assert!(check(&minutes).unwrap_err().contains("age_minutes"));
    let without_help = page.replace("# HELP waits Waits.\n", "");
    assert!(check(&without_help).unwrap_err().contains("waits_total no help text"));
}
